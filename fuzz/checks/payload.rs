//! DUMP's payloads: RESTORE accepts or rejects any bytes, and a value that it accepted,
//! or that SET wrote, survives DUMP and RESTORE.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use crc::{CRC_64_REDIS, Crc};
use midi::command::{Args, Cluster, find};
use midi::engine::{Author, Call, Config, Engine, Gates, Locked, Outcome, Settings, Taking};
use midi::net::Output;
use midi::net::resp::RespReply;
use midi::store::Now;

const MAX_VALUE_BYTES: usize = 1 << 20;

/// The first byte decides whether the rest is a payload, the content of one, or a value.
pub fn check(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    thread_local! {
        static ENGINE: Engine = engine();
    }
    ENGINE.with(|engine| match mode % 3 {
        0 => restored(engine, rest),
        1 => restored(engine, &sealed(rest)),
        _ => {
            assert_eq!(run(engine, &[b"set", b"a", rest]), b"+OK\r\n");
            comes_back(engine);
            assert_eq!(text(&run(engine, &[b"get", b"a"])), rest);
        }
    });
}

/// A content with a valid trailer.
fn sealed(content: &[u8]) -> Vec<u8> {
    let mut payload = [content, &10_u16.to_le_bytes()].concat();
    payload.extend(Crc::<u64>::new(&CRC_64_REDIS).checksum(&payload).to_le_bytes());
    payload
}

fn restored(engine: &Engine, payload: &[u8]) {
    let reply = run(engine, &[b"restore", b"a", b"0", payload, b"replace"]);
    if reply == b"+OK\r\n" {
        comes_back(engine);
    } else {
        assert_eq!(reply[0], b'-', "{}", reply.escape_ascii());
    }
}

/// DUMP and RESTORE do not change key `a`. There is none if all fields of a hash had expired.
fn comes_back(engine: &Engine) {
    let payload = run(engine, &[b"dump", b"a"]);
    if payload == b"$-1\r\n" {
        return assert_eq!(run(engine, &[b"get", b"a"]), payload);
    }
    let value = value_of(engine, b"a");
    assert_eq!(run(engine, &[b"restore", b"b", b"0", text(&payload), b"replace"]), b"+OK\r\n");
    assert_eq!(value_of(engine, b"b"), value);
}

/// The value of a string, and of a hash how many fields it has: `hash_payload` has more about them.
fn value_of(engine: &Engine, key: &[u8]) -> Vec<u8> {
    let value = run(engine, &[b"get", key]);
    if value.starts_with(b"-WRONGTYPE") {
        return run(engine, &[b"hlen", key]);
    }
    assert!(text(&value).len() <= MAX_VALUE_BYTES);
    value
}

/// The string in a reply.
fn text(reply: &[u8]) -> &[u8] {
    let head = reply.iter().position(|&byte| byte == b'\n').expect("a line") + 1;
    &reply[head..reply.len() - 2]
}

fn engine() -> Engine {
    let config = Config {
        workers: 1,
        shards: 1,
        databases: 1,
        cluster: Cluster::Off,
        safemode: false,
        clock: || 1_600_000_000_000,
    };
    let settings = Settings {
        pool: AtomicBool::new(false),
        max_jobs: AtomicUsize::new(1),
        max_queued: AtomicUsize::new(1),
        max_pattern_bytes: AtomicUsize::new(1),
        max_key_bytes: AtomicUsize::new(1),
        max_value_bytes: AtomicUsize::new(MAX_VALUE_BYTES),
        keep_bytes: AtomicUsize::new(1000),
        max_atomic_keys: AtomicUsize::new(2),
        host_output: AtomicUsize::new(usize::MAX),
        port: Default::default(),
        ..Settings::default()
    };
    let engine = Engine::new(config, settings, Box::new(|| {})).expect("an eventfd");
    // SAFETY: there is no host, and the engine is on one thread. No host is loading its data.
    engine.ledger.set_gates(unsafe { Locked::assume() }, Gates::OPEN);
    engine
}

fn run(engine: &Engine, args: &[&[u8]]) -> Vec<u8> {
    let call = Call {
        command: find(args[0]).expect("a command of the table"),
        args: Args::new(args),
        db: 0,
        now: Now::lazy(engine.config().clock),
        limits: engine.settings().limits(usize::MAX),
        prefix: "",
        author: Author::Nobody,
    };
    let mut out = Output::default();
    let (slot, mut reply) = (engine.worker_slot(0), RespReply::new(&mut out, false));
    let outcome = engine.attempt(slot, &call, Taking::WORKER, &mut reply);
    assert_eq!(outcome, Outcome::Done);
    std::mem::take(&mut out.own)
}
