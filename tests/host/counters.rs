//! The promise: INCR, DECR, INCRBY, DECRBY and INCRBYFLOAT answer and store exactly what the stock
//! commands do, to the last digit.

use crate::common::{Mode, Random, Twin, in_all_modes_and_protocols};

/// Integers, valid and invalid, as people and programs write them.
const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "10",
    "9223372036854775806",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775807",
    "-9223372036854775808",
    "-9223372036854775809",
    "4611686018427387904",
    "-4611686018427387905",
    "99999999999999999999",
    "-0",
    "+1",
    "01",
    " 1",
    "1 ",
    "",
    "-",
    "abc",
    "1.0",
    "1e3",
    "0x10",
    "1\0",
];

#[test]
fn integers_are_added_and_subtracted() {
    in_all_modes_and_protocols(|twin| {
        for before in INTEGERS {
            for step in INTEGERS {
                for command in ["INCRBY", "DECRBY", "incrby"] {
                    twin.push(&["SET", "k", before]);
                    twin.push(&[command, "k", step]);
                    twin.push(&["GET", "k"]);
                }
            }
            for command in ["INCR", "DECR", "iNcR"] {
                twin.push(&["SET", "k", before]);
                twin.push(&[command, "k"]);
                twin.push(&["GET", "k"]);
                twin.push(&[command, before]);
                twin.push(&["GET", before]);
            }
            twin.push(&["DEL", "k"]);
            twin.push(&["DECRBY", "k", before]);
            twin.push(&["GET", "k"]);
        }
    });
}

#[test]
fn counters_keep_their_expiry() {
    in_all_modes_and_protocols(|twin| {
        for command in ["INCR k", "DECR k", "INCRBY k 1000000", "DECRBY k -7", "INCRBYFLOAT k 0.25"]
        {
            for expiry in ["", " EX 1000", " PXAT 1"] {
                twin.push_line(&format!("SET k 99{expiry}"));
                for _ in 0..3 {
                    twin.push_line(command);
                }
                twin.push_line("GET k");
                twin.push_line("PTTL k");
            }
        }
    });
}

#[test]
fn wrong_arities_are_refused_in_the_same_words() {
    in_all_modes_and_protocols(|twin| {
        for name in ["INCR", "DECR", "INCRBY", "DECRBY", "INCRBYFLOAT", "incrbyFloat"] {
            for count in 0..5 {
                let mut args = vec![name.to_owned()];
                args.extend((0..count).map(|number| format!("{number}")));
                twin.push(&args);
            }
        }
    });
}

/// Edge cases for INCRBYFLOAT.
fn edges() -> Vec<String> {
    let mut texts: Vec<String> = [
        "0",
        "-0",
        "+0",
        "0.0",
        "1",
        "-1",
        "+1",
        "1.",
        ".5",
        "-.5",
        ".",
        "-",
        "+",
        "",
        " ",
        " 1",
        "1 ",
        "\t1",
        "1\n",
        "1\0",
        "\0",
        "--1",
        "+-1",
        "1.2.3",
        "1,5",
        "1_0",
        "abc",
        "1a",
        "e5",
        "1e",
        "1e+",
        "1e-",
        "1e5",
        "1E5",
        "1e+5",
        "1e-5",
        "1.e5",
        ".1e5",
        "1e5.5",
        "1ee5",
        "0e99999999999999999999",
        "0e-99999999999999999999",
        "1e99999999999999999999",
        "1e-99999999999999999999",
        "0.0e9223372036854775808",
        "1e4932",
        "1.18973149535723176502e4932",
        "1.18973149535723176508575932662800701e4932",
        "1.18973149535723176508575932662800702e4932",
        "1.1897314953572317651e4932",
        "-1.1897314953572317650e4932",
        "1.2e4932",
        "1e4933",
        "1e-4931",
        "3.3621031431120935062e-4932",
        "3.6451995318824746025e-4951",
        "1.8225997659412373013e-4951",
        "1.8225997659412373012e-4951",
        "1.9e-4951",
        "1.8e-4951",
        "1e-4951",
        "1e-4952",
        "-1e-4951",
        "inf",
        "-inf",
        "+inf",
        "INF",
        "Infinity",
        "-INFINITY",
        "infinit",
        "infinityx",
        "inf ",
        "nan",
        "NaN",
        "-nan",
        "nan(123)",
        "nan()",
        "0x",
        "0X",
        "0x1",
        "0X1F",
        "-0xff",
        "0x.8",
        "0x8.",
        "0x.",
        "0x1p4",
        "0x1P-4",
        "0x1p+4",
        "0x1p",
        "0xp1",
        "0x1p1.5",
        "0x1e5",
        "0xg",
        "0x0p99999999999999999999",
        "0x1p99999999999999999999",
        "0x1p-99999999999999999999",
        "0x1p16383",
        "0x1p16384",
        "0x1.fffffffffffffffep16383",
        "0x1.ffffffffffffffffp16383",
        "0x1.fffffffffffffffefp16383",
        "0x1p-16382",
        "0x1p-16445",
        "0x1p-16446",
        "0x1.8p-16446",
        "0x1.0000001p-16446",
        "0x1p-16447",
        "0x3p-16446",
        "0x1.0000000000000001",
        "0x1.00000000000000018",
        "0x1.00000000000000008",
        "0x0.0000000000000000000000000000000001p140",
        "0x1p0x5",
        "0b1",
        "1p5",
        "1d5",
        "1f",
        "1L",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551617",
        "18446744073709551618",
        "18446744073709551619",
        "36893488147419103233",
        "36893488147419103234",
        "36893488147419103235",
        "0.1",
        "0.2",
        "0.3",
        "1e-17",
        "5e-18",
        "4.9e-18",
        "5.1e-18",
        "-5e-18",
        "-1e-18",
        "1.5e-17",
        "2.5e-17",
        "0.00000000000000001",
        "0.000000000000000005",
        "1.999999999999999999999",
        "0.99999999999999999",
        "0.999999999999999999",
        "-0.99999999999999999999",
        "3.14159265358979323846264338327950288",
        "\u{661}",
    ]
    .map(str::to_owned)
    .to_vec();
    // The longest texts that are valid numbers, and the shortest that are too long.
    for len in [5118, 5119, 5120, 6000] {
        texts.push("1".repeat(len));
        texts.push("0".repeat(len - 1) + "7");
        texts.push(format!("0.{}", "3".repeat(len - 2)));
        texts.push(format!("1{}", ".0".to_owned() + &"0".repeat(len - 3)));
        texts.push(format!("0x{}", "f".repeat(len - 2)));
        texts.push(format!("{}e-{len}", "9".repeat(len - 6)));
        texts.push(format!("1.{}1", "0".repeat(len - 3)));
    }
    texts
}

fn push_sum(twin: &mut Twin, before: &str, step: &str) {
    twin.push(&["SET", "k", before]);
    twin.push(&["INCRBYFLOAT", "k", step]);
    twin.push(&["GET", "k"]);
}

#[test]
fn fractions_at_the_edges() {
    in_all_modes_and_protocols(|twin| {
        for text in edges() {
            twin.push_line("DEL k");
            twin.push(&["INCRBYFLOAT", "k", &text]);
            twin.push_line("GET k");
            push_sum(twin, &text, "1.5");
            push_sum(twin, "-0.1", &text);
        }
    });
}

#[test]
fn fractions_at_the_edges_with_each_other() {
    let server = Mode::Adaptive.server();
    let twin = &mut Twin::new(server.client());
    let edges: Vec<String> = edges().into_iter().filter(|text| text.len() < 100).collect();
    for before in &edges {
        for step in &edges {
            push_sum(twin, before, step);
        }
    }
    twin.flush();
}

fn random_digits(random: &mut Random, most: usize) -> String {
    (0..random.below(most + 1)).map(|_| char::from(b'0' + random.below(10) as u8)).collect()
}

/// A text that is usually a number.
fn random_number(random: &mut Random) -> String {
    let sign = random.pick(&["", "", "-", "+"]);
    let text = match random.below(8) {
        0 => random.next().to_string(),
        1 => format!("{}.{}", random_digits(random, 6), random_digits(random, 20)),
        2 => format!("{}.{}", random_digits(random, 25), random_digits(random, 40)),
        3 => {
            let exponent = random.below(10_000) as i64 - 5000;
            format!("{}.{}e{exponent}", random_digits(random, 20), random_digits(random, 30))
        }
        4 => {
            let exponent = random.below(60) as i64 - 40;
            format!("{}.{}E{exponent}", random_digits(random, 10), random_digits(random, 20))
        }
        5 => {
            let exponent = random.below(200) as i64 - 120;
            format!("0x{:x}.{:x}p{exponent}", random.next() >> random.below(64), random.next())
        }
        6 => {
            let exponent = random.below(33_200) as i64 - 16_600;
            format!("0X{:X}p{exponent}", random.next() >> random.below(64))
        }
        // Halfway between two 64-bit numbers, or nearly so.
        _ => {
            let odd = (u128::from(random.next() | 1 << 63) << 1 | 1) << random.below(60);
            (odd + random.below(3) as u128 - 1).to_string()
        }
    };
    let text = format!("{sign}{text}");
    if random.below(50) > 0 {
        return text;
    }
    // The text with one byte changed.
    let at = random.below(text.len().max(1));
    let other = *b"0159.eEpPx-+ \0"[random.below(14)..].first().unwrap_or(&b'0');
    text.char_indices()
        .map(|(place, old)| if place == at { char::from(other) } else { old })
        .collect()
}

#[test]
fn fractions_at_random() {
    let server = Mode::Adaptive.server();
    let twin = &mut Twin::new(server.client());
    let mut random = Random::new(2026);
    for _ in 0..15_000 {
        let (before, step) = (random_number(&mut random), random_number(&mut random));
        push_sum(twin, &before, &step);
    }
    // Running sums, whose small errors must add up to the same result.
    for step in ["0.1", "-0.3", "1e-5", "1234567.89", "1e15", "-1e15"] {
        twin.push_line("SET k 0");
        for _ in 0..500 {
            twin.push(&["INCRBYFLOAT", "k", step]);
        }
    }
    twin.flush();
}
