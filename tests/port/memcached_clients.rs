//! The promise: a memcached client library of Rust works with midi's memcached port as with
//! memcached, with the text and with the meta protocol, in all modes. `tests/tools/programs.rs`
//! tests those of other languages.

use std::collections::HashMap;
use std::time::Duration;

use memcache::Client;
use memcache::exp::{Error, Memcache, Ttl};

use crate::common::memcached::WithMemcached;
use crate::common::{HANG, Mode, at_once};

fn in_all_modes(body: impl Fn(&WithMemcached)) {
    for mode in Mode::tried() {
        println!("mode: {mode:?}");
        body(&WithMemcached::start(mode.builder()));
    }
}

fn connect(server: &WithMemcached) -> Client {
    let url = format!("memcache://127.0.0.1:{}?protocol=ascii", server.number());
    let client = Client::connect(url).expect("a connection");
    client.set_read_timeout(Some(HANG)).expect("a timeout");
    client
}

#[test]
fn the_text_protocol_works() {
    in_all_modes(|server| {
        let client = connect(server);
        client.flush().expect("flush_all");
        assert!(client.version().expect("version")[0].1.starts_with("1.6."));
        assert_eq!(client.get::<String>("nosuch").expect("a miss"), None);
        let bytes: Vec<u8> = (0..=255).chain(*b"\r\nEND\r\n").collect();
        client.set("bytes", bytes.as_slice(), 0).expect("set");
        assert_eq!(client.get::<Vec<u8>>("bytes").expect("get"), Some(bytes));
        client.add("text", "b", 100).expect("add");
        // The library does not tell that the key is there already.
        client.add("text", "c", 100).expect("add");
        client.append("text", "c").expect("append");
        client.prepend("text", "a").expect("prepend");
        assert_eq!(client.get::<String>("text").expect("get"), Some("abc".into()));
        client.replace("text", 42, 100).expect("replace");
        assert_eq!(client.increment("text", 5).expect("incr"), 47);
        assert_eq!(client.decrement("text", 100).expect("decr"), 0);
        assert!(client.touch("text", 1000).expect("touch"));
        let (value, _, unique): (String, u32, Option<u64>) =
            client.get("text").expect("gets").expect("a value");
        assert_eq!(value.trim(), "0");
        let unique = unique.expect("a number");
        assert!(client.cas("text", "new", 0, unique).expect("cas"));
        assert!(!client.cas("text", "newer", 0, unique).expect("cas"));
        for number in 0..1000 {
            client.set(&format!("key:{number}"), number, 0).expect("set");
        }
        let names: Vec<String> = (0..1001).map(|number| format!("key:{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let found: HashMap<String, u64> = client.gets(&names).expect("a get of many");
        assert_eq!((found.len(), found["key:999"]), (1000, 999));
        assert!(client.delete("text").expect("delete"));
        assert!(!client.delete("text").expect("delete"));
    });
}

/// Leases, stale values and chains of `cas`, which the library makes of meta commands.
#[test]
fn the_meta_protocol_works() {
    in_all_modes(|server| {
        let address = format!("127.0.0.1:{}", server.number());
        let cache = Memcache::builder().timeout(HANG).degrade(false);
        let cache = cache.connect([address.as_str()]).expect("a connection");
        let hour = Ttl::secs(3600);
        cache.set("user", "ann", hour).expect("set");
        assert_eq!(cache.get::<String>("user").expect("get"), Some("ann".into()));
        assert!(!cache.add("user", "bob", hour).expect("add"));
        assert!(cache.replace("user", "bob", hour).expect("replace"));
        cache.append("user", b"by", hour).expect("append");
        assert_eq!(cache.take::<String>("user").expect("take"), Some("bobby".into()));
        assert_eq!(cache.get::<String>("user").expect("get"), None);
        assert_eq!(cache.incr("count", 5, hour).expect("incr"), 5);
        assert_eq!(cache.decr("count", 2, hour).expect("decr"), 3);
        cache.set_many((0..500).map(|number| (format!("k{number}"), number)), hour).expect("set");
        let names = (0..600).map(|number| format!("k{number}"));
        assert_eq!(cache.get_many::<u64, String>(names).expect("a get of many").len(), 500);
        at_once(4, |_| {
            for _ in 0..25 {
                let add = |sum: Option<u64>| sum.unwrap_or(0) + 1;
                // The library gives up after a few conflicts.
                while let Err(error) = cache.update("sum", hour, add) {
                    assert!(matches!(error, Error::Conflict), "{error}");
                }
            }
        });
        assert_eq!(cache.get::<u64>("sum").expect("get"), Some(100));
        let load = |text: &str| {
            let text = text.to_owned();
            cache.fetch("page", hour, move || Ok::<_, std::io::Error>(text)).expect("a value")
        };
        assert_eq!([load("first"), load("second")], ["first", "first"]);
        cache.invalidate("page", Duration::from_secs(60)).expect("invalidate");
        assert_eq!(cache.get::<String>("page").expect("get"), Some("first".into()), "stale");
        assert_eq!(load("second"), "second");
    });
}
