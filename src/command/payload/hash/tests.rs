mod written;

use proptest::prelude::*;

use super::super::{MAX_VERSION, Restored, WRITTEN_VERSION, read_payload, seal};
use super::*;

const LIMITS: Limits = Limits { max_value_bytes: 1 << 16, ..Limits::NONE };

/// The version of Redis 7.4.
const VERSION_OF_7_4: u16 = 12;

type OwnedField = (Vec<u8>, Vec<u8>, Option<i64>);

fn read_whole(payload: &[u8], limits: &Limits) -> Result<Vec<OwnedField>, Error> {
    let Restored::Hash(hash) = read_payload(payload, limits)? else {
        panic!("not a hash");
    };
    let fields = hash.fields(limits)?;
    let owned = fields
        .iter()
        .map(|field| (field.field.bytes().to_vec(), field.value.bytes().to_vec(), field.expire_at));
    Ok(owned.collect())
}

fn sealed(content: &[u8], version: u16) -> Vec<u8> {
    let mut payload = content.to_vec();
    seal(&mut payload, version);
    payload
}

fn read(content: &[u8], version: u16) -> Result<Vec<OwnedField>, Error> {
    read_whole(&sealed(content, version), &LIMITS)
}

fn read_10(content: &[u8]) -> Result<Vec<OwnedField>, Error> {
    read(content, WRITTEN_VERSION)
}

fn plain(pairs: &[(&str, &str)]) -> Vec<OwnedField> {
    let owned = |&(field, value): &(&str, &str)| (field.into(), value.into(), None);
    pairs.iter().map(owned).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// Before each element of a packed string, its length: a string of up to 16,383 bytes.
fn string(text: &[u8]) -> Vec<u8> {
    [&[0x40 | (text.len() >> 8) as u8, text.len() as u8], text].concat()
}

fn listpack_of(elements: &[&[u8]], count: u16) -> Vec<u8> {
    let elements = elements.concat();
    let bytes = (elements.len() + 7) as u32;
    string(&[&bytes.to_le_bytes()[..], &count.to_le_bytes(), &elements, b"\xff"].concat())
}

/// A short text as an element of a listpack.
fn text(text: &str) -> Vec<u8> {
    let len = text.len() as u8;
    [&[0x80 | len], text.as_bytes(), &[len + 1]].concat()
}

/// A number as an element of a listpack.
fn number(number: u64) -> Vec<u8> {
    [b"\xf4", &number.to_le_bytes()[..], b"\x09"].concat()
}

#[test]
fn tables_of_the_hosts() {
    // HSET t a 1 long yyy… i 1234567, on Redis 7.0.15, 8.6.3 and Valkey 9.1.2.
    let long = "y".repeat(100);
    let fields = [("a", "1"), ("i", "1234567"), ("long", &*long)];
    for payload in [
        "04030169c287d61200046c6f6e67c3094064017979e057000179790161c0010a001abc6edb1402156b",
        "0403046c6f6e67c3094064017979e057000179790169c287d612000161c0010d00fd8b8a5e00d28424",
        "04030161c001046c6f6e67c3094064017979e057000179790169c287d612005000240638f5f576f13f",
    ] {
        let mut read = read_whole(&hex(payload), &LIMITS).expect("a hash");
        read.sort();
        assert_eq!(read, plain(&fields));
    }
}

/// HSET rep field:0 value-of-it … field:11 value-of-it, without the footer.
const LISTPACK_OF_THE_HOSTS: &str = "10c3406141111b110100001800876669656c643a30088b76616c75652d6f\
     662d69740ca0150031e00c150032e00c150033e00c150034e00c150035e00c150036e00c150037e00c150038e00c\
     150039e00515008880db02313009e004dcc0160031e00416010cff";

#[test]
fn listpacks_of_the_hosts() {
    let fields: Vec<OwnedField> =
        (0..12).map(|at| (format!("field:{at}").into(), b"value-of-it".to_vec(), None)).collect();
    // Redis 7.0.15, 8.6.3, Valkey 9.1.2.
    for footer in ["0a00c16479d4aecc7d5e", "0d0063cdf067a9790a9e", "50000e4eb045309e1aaa"] {
        let payload = hex(&format!("{LISTPACK_OF_THE_HOSTS}{footer}"));
        assert_eq!(read_whole(&payload, &LIMITS).as_ref(), Ok(&fields));
    }
}

#[test]
fn due_times_of_the_hosts() {
    // HSET e a 1 b 2 c 3, then HPEXPIREAT of a and b.
    let due = |field: &str, value: &str, at| (field.into(), value.into(), at);
    let [first, second] = [Some(4_000_000_000_000), Some(4_000_000_001_000)];
    let listpack = "1900409452a30300002c2c00000009008162020201f400409452a3030000098161020101f4e843\
                    9452a30300000981630203010001ff0d003ef500ec705250c8";
    assert_eq!(
        read_whole(&hex(listpack), &LIMITS),
        Ok(vec![due("b", "2", first), due("a", "1", second), due("c", "3", None)])
    );
    let valkeys = "16030161c001e8439452a30300000162c00200409452a30300000163c003ffffffffffffffff50\
                   00e6d476c4e24bbd5d";
    assert_eq!(
        read_whole(&hex(valkeys), &LIMITS),
        Ok(vec![due("a", "1", second), due("b", "2", first), due("c", "3", None)])
    );
    // The same with a value of 100 bytes.
    let long = "2".repeat(100);
    let table = "1800409452a303000003010162c3094064013232e05700013232000163c00343e90161c0010d004a7\
                 78660d7ed9db6";
    assert_eq!(
        read_whole(&hex(table), &LIMITS),
        Ok(vec![due("b", &long, first), due("c", "3", None), due("a", "1", second)])
    );
}

#[test]
fn due_times_of_candidates_are_absolute() {
    let at = 4_000_000_000_000_u64;
    let first = (b"a".to_vec(), b"b".to_vec(), Some(at as i64));
    let listpack = listpack_of(&[&text("a"), &text("b"), &number(at)], 3);
    assert_eq!(read(&[b"\x17", &listpack[..]].concat(), VERSION_OF_7_4), Ok(vec![first.clone()]));
    let table = [b"\x16\x02\x81", &at.to_be_bytes()[..], b"\x01a\x01b\0\x01c\x01d"].concat();
    let second = (b"c".to_vec(), b"d".to_vec(), None);
    assert_eq!(read(&table, VERSION_OF_7_4), Ok(vec![first, second]));
    // In Valkey the number is another form's.
    assert_eq!(read(&table, FIRST_VERSION_OF_VALKEY), Err(Error::BadData));
}

#[test]
fn numbers_of_listpacks() {
    let elements: [(&[u8], &str); 15] = [
        (b"\x00\x01", "0"),
        (b"\x7f\x01", "127"),
        (b"\xc0\x80\x02", "128"),
        (b"\xcf\xff\x02", "4095"),
        (b"\xd0\x00\x02", "-4096"),
        (b"\xdf\xff\x02", "-1"),
        (b"\xf1\x00\x80\x03", "-32768"),
        (b"\xf1\xff\x7f\x03", "32767"),
        (b"\xf2\x00\x00\x80\x04", "-8388608"),
        (b"\xf2\xff\xff\x7f\x04", "8388607"),
        (b"\xf3\x00\x00\x00\x80\x05", "-2147483648"),
        (b"\xf3\xff\xff\xff\x7f\x05", "2147483647"),
        (b"\xf4\x00\x00\x00\x00\x00\x00\x00\x80\x09", "-9223372036854775808"),
        (b"\xf4\xff\xff\xff\xff\xff\xff\xff\x7f\x09", "9223372036854775807"),
        (b"\xe0\x02hi\x04", "hi"),
    ];
    for (element, value) in elements {
        let content = listpack_of(&[&text("a"), element], 2);
        assert_eq!(read_10(&[b"\x10", &content[..]].concat()), Ok(plain(&[("a", value)])));
    }
}

#[test]
fn ziplists() {
    let ziplist = |elements: &[&[u8]], count: u16| {
        let (mut all, mut last, mut len) = (Vec::new(), 0, 0);
        for element in elements {
            last = all.len();
            all.extend([&[len], *element].concat());
            len = (all.len() - last) as u8;
        }
        let [bytes, last] = [all.len() + 11, last + 10].map(|number| (number as u32).to_le_bytes());
        string(&[&bytes[..], &last, &count.to_le_bytes(), &all, b"\xff"].concat())
    };
    let read =
        |elements: &[&[u8]], count| read_10(&[b"\x0d", &ziplist(elements, count)[..]].concat());
    for (element, value) in [
        (&b"\x02hi"[..], "hi"),
        (b"\x40\x02hi", "hi"),
        (b"\x80\0\0\0\x02hi", "hi"),
        (b"\xf1", "0"),
        (b"\xfd", "12"),
        (b"\xfe\xff", "-1"),
        (b"\xc0\x00\x80", "-32768"),
        (b"\xf0\x00\x00\x80", "-8388608"),
        (b"\xd0\x00\x00\x00\x80", "-2147483648"),
        (b"\xe0\x00\x00\x00\x00\x00\x00\x00\x80", "-9223372036854775808"),
    ] {
        let elements: [&[u8]; 4] = [b"\x01a", element, b"\x01b", b"\x01c"];
        let fields = plain(&[("a", value), ("b", "c")]);
        assert_eq!(read(&elements, 4).as_ref(), Ok(&fields));
        assert_eq!(read(&elements, UNKNOWN_COUNT).as_ref(), Ok(&fields));
        assert_eq!(read(&elements, 3), Err(Error::BadData));
        assert_eq!(read(&elements[..3], 3), Err(Error::BadData));
    }
    assert_eq!(read(&[b"\x01a", b"\x01b", b"\x01a", b"\x01b"], 4), Err(Error::BadData));
    assert_eq!(read(&[b"\x01a", b"\xff"], 2), Err(Error::BadData));
    assert_eq!(read(&[b"\x01a", b"\x02b"], 2), Err(Error::BadData));
    assert_eq!(read(&[], 0), Err(Error::BadData));
    // The length before an element may take 5 bytes; it must be right.
    let long = |len: u8, last: u8| {
        [b"\x0d\x15\x15\0\0\0", &[last][..], b"\0\0\0\x02\0\0\x01a\xfe", &[len], b"\0\0\0\x01b\xff"]
            .concat()
    };
    assert_eq!(read_10(&long(3, 13)), Ok(plain(&[("a", "b")])));
    assert_eq!(read_10(&long(2, 13)), Err(Error::BadData));
    assert_eq!(read_10(&long(3, 12)), Err(Error::BadData));
}

const UNKNOWN_COUNT: u16 = u16::MAX;

#[test]
fn zipmaps() {
    let read = |zipmap: &[u8]| read_10(&[b"\x09", &string(zipmap)[..]].concat());
    let fields = plain(&[("foo", "bar"), ("hello", "world")]);
    for good in [
        &b"\x02\x03foo\x03\x00bar\x05hello\x05\x02world!!\xff"[..],
        b"\xfe\x03foo\x03\x00bar\x05hello\x05\x00world\xff",
        b"\x02\xfe\x03\0\0\0foo\x03\x00bar\x05hello\xfe\x05\0\0\0\x00world\xff",
    ] {
        assert_eq!(read(good).as_ref(), Ok(&fields));
    }
    for bad in [
        &b""[..],
        b"\xff",
        b"\x00\xff",
        b"\x01\x03foo\x03\x00bar",
        b"\x01\x03foo\x03\x00bar\xff\xff",
        b"\x01\x03foo\x03\x01bar\xff",
        b"\x01\x03foo\xff",
        b"\x01\xff\x03\0\0\0foo\x03\x00bar\xff",
        b"\x02\x03foo\x03\x00bar\xff",
        b"\x02\x03foo\x03\x00bar\x03foo\x03\x00bar\xff",
    ] {
        assert_eq!(read(bad), Err(Error::BadData), "{}", bad.escape_ascii());
    }
}

#[test]
fn damaged_tables_are_refused() {
    assert_eq!(read_10(b"\x04\x02\x01a\x01b\x01c\0"), Ok(plain(&[("a", "b"), ("c", "")])));
    for bad in [
        &b"\x04"[..],
        b"\x04\0",
        b"\x04\xc0",
        b"\x04\xc0\x01\x01a\x01b",
        b"\x04\x01\x01a",
        b"\x04\x01\x01a\x01",
        b"\x04\x01\x01a\x01bx",
        b"\x04\x02\x01a\x01b",
        b"\x04\x02\x01a\x01b\x01a\x01c",
        // A number in both ways.
        b"\x04\x02\xc0\x01\x01b\x011\x01c",
        b"\x04\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01a\x01b",
    ] {
        assert_eq!(read_10(bad), Err(Error::BadData), "{}", bad.escape_ascii());
    }
}

#[test]
fn damaged_listpacks_are_refused() {
    let [a, b] = [text("a"), text("b")];
    let read_of = |listpack: &[u8]| read_10(&[b"\x10", listpack].concat());
    assert_eq!(read_of(&listpack_of(&[&a, &b], 2)), Ok(plain(&[("a", "b")])));
    assert_eq!(read_of(&listpack_of(&[&a, &b], UNKNOWN_COUNT)), Ok(plain(&[("a", "b")])));
    for (elements, count) in [
        (&[][..], 0),
        (&[&a[..]][..], 1),
        (&[&a, &b], 3),
        (&[&a, &b, &a, &b], 4),
        (&[&a, &b, b"\xff"], 2),
        (&[&a, b"\x81b\x03"], 2),
        (&[&a, b"\x81b"], 2),
        (&[&a, b"\x82b\x02"], 2),
        (&[&a, b"\xf5\x01"], 2),
        (&[&a, b"\xf0\xff\xff\xff\xff\x05"], 2),
        // A number in both ways.
        (&[b"\x01\x01", &b, &text("1"), &b], 4),
    ] {
        assert_eq!(read_of(&listpack_of(elements, count)), Err(Error::BadData), "{elements:?}");
    }
    let mut longer = listpack_of(&[&a, &b], 2);
    longer.push(b'x');
    assert_eq!(read_of(&longer), Err(Error::BadData));
    // The length of the whole is wrong.
    let mut other = listpack_of(&[&a, &b], 2);
    other[2] += 1;
    assert_eq!(read_of(&other), Err(Error::BadData));
}

#[test]
fn due_times_are_checked_as_redis_does() {
    let last = (1_u64 << 48) - 1;
    let listpack = |dues: [&[u8]; 2]| {
        let [a, b] = [text("a"), text("b")];
        let content = listpack_of(&[&a, &b, dues[0], &b, &a, dues[1]], 6);
        read(&[b"\x19\0\0\0\0\0\0\0\0", &content[..]].concat(), VERSION_OF_7_4)
    };
    let never = b"\0\x01";
    for (dues, is_right) in [
        ([&number(5)[..], &number(5)[..]], true),
        ([&number(5), &number(last)], true),
        ([&number(5), &never[..]], true),
        ([&never[..], &never[..]], true),
        ([&number(5), &number(last + 1)], false),
        ([&number(6), &number(5)], false),
        ([&never[..], &number(5)], false),
        ([&number(5), &number(-1_i64 as u64)], false),
        ([&text("5"), &number(5)], false),
    ] {
        assert_eq!(listpack(dues).is_ok(), is_right, "{dues:?}");
    }

    let table = |least: u64, due: &[u8]| {
        let content = [b"\x18", &least.to_le_bytes()[..], b"\x01", due, b"\x01a\x01b"].concat();
        read(&content, VERSION_OF_7_4).map(|fields| fields[0].2)
    };
    assert_eq!(table(last, b"\x01"), Ok(Some(last as i64)));
    assert_eq!(table(last, b"\x02"), Err(Error::BadData));
    assert_eq!(table(u64::MAX, b"\x02"), Err(Error::BadData));
    assert_eq!(table(last + 1, b"\0"), Ok(None));

    let of_valkey = |due: i64| {
        let content = [b"\x16\x01\x01a\x01b", &due.to_le_bytes()[..]].concat();
        read(&content, FIRST_VERSION_OF_VALKEY).map(|fields| fields[0].2)
    };
    assert_eq!(of_valkey(0), Ok(Some(0)));
    assert_eq!(of_valkey(i64::MAX), Ok(Some(i64::MAX)));
    assert_eq!(of_valkey(-1), Ok(None));
    assert_eq!(of_valkey(-2), Err(Error::BadData));
}

#[test]
fn types_of_other_hosts_are_no_hashes() {
    let listpack =
        [b"\x19\0\0\0\0\0\0\0\0", &listpack_of(&[&text("a"), b"\0\x01"], 2)[..]].concat();
    for kind in [23, 24, 25, 26] {
        let mut content = listpack.clone();
        content[0] = kind;
        let payload = sealed(&content, MAX_VERSION);
        assert_eq!(read_payload(&payload, &LIMITS).err(), Some(Error::OtherType));
    }
}

#[test]
fn long_texts_are_refused_before_they_are_made() {
    let limit = LIMITS.max_value_bytes;
    let too_long = Err(Error::ValueTooLong(limit));
    let plain = [b"\x04\x01\x01a\x80\0\x01\0\x01", &vec![b'x'; limit + 1][..]].concat();
    assert_eq!(read_10(&plain), too_long);
    // 1000 bytes that claim to be one more than the limit.
    let packed = [b"\x04\x01\x01a\xc3\x43\xe8\x80\0\x01\0\x01", &[0; 1000][..]].concat();
    assert_eq!(read_10(&packed), too_long);

    let elements = [b'x'; 100];
    let long = [b"\xe0\x64", &elements[..], b"\x66"].concat();
    let content = [b"\x10", &listpack_of(&[&text("a"), &long], 2)[..]].concat();
    let payload = sealed(&content, WRITTEN_VERSION);
    let limits = Limits { max_value_bytes: 100, ..LIMITS };
    assert!(read_whole(&payload, &limits).is_ok());
    let limits = Limits { max_value_bytes: 99, ..LIMITS };
    assert_eq!(read_whole(&payload, &limits), Err(Error::ValueTooLong(99)));
}

#[test]
fn a_thread_unpacks_no_more_than_it_may() {
    let field =
        |name: u8| [b"\x01", &[name][..], b"\xc3\x09\x40\x64\x01yy\xe0\x57\x00\x01yy"].concat();
    let two = [b"\x04\x02", &field(b'a')[..], &field(b'b')].concat();
    let payload = sealed(&two, WRITTEN_VERSION);
    for (max_reply_bytes, is_right) in [(200, true), (199, false)] {
        let limits = Limits { max_reply_bytes, ..LIMITS };
        let read = read_whole(&payload, &limits);
        assert_eq!(read.is_ok(), is_right);
        assert!(is_right || read == Err(Error::ReplyTooLarge));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(
        kind in prop_oneof![Just(4), Just(9), Just(13), Just(16), 22..26_u8],
        version in prop_oneof![Just(VERSION_OF_7_4), Just(MAX_VERSION)],
        mut rest in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        rest.insert(0, kind);
        if let Ok(fields) = read_payload(&sealed(&rest, version), &LIMITS).and_then(|restored| {
            let Restored::Hash(hash) = restored else { panic!("not a hash") };
            hash.fields(&LIMITS).map(|fields| fields.len())
        }) {
            prop_assert!(fields > 0);
        }
    }

    #[test]
    fn damaged_payloads_are_read_or_refused(
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4),
    ) {
        let mut content = hex(LISTPACK_OF_THE_HOSTS);
        for (at, byte) in changes {
            let len = content.len();
            content[1 + at % (len - 1)] = byte;
        }
        let _ = read_10(&content);
    }
}
