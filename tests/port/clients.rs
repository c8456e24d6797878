//! The promise: an ordinary client library works with midi's port as with a Redis, with either
//! protocol, over TCP or a unix socket, without special settings. Here redis-rs;
//! `tests/tools/programs.rs` tests those of other languages.

use std::collections::HashMap;
use std::time::Duration;

use crate::common::{Mode, Server, Value, at_once, wait_until};
use redis::{Commands, Connection, ConnectionLike, ErrorKind, RedisResult};

/// Runs `body` in all modes.
fn in_all_modes(body: impl Fn(Mode, &Server)) {
    for mode in Mode::tried() {
        println!("mode: {mode:?}");
        body(mode, &mode.builder().with_port().start());
    }
}

/// A connection by URL: `{}` is the address.
fn connect(server: &Server, url: &str) -> RedisResult<Connection> {
    let address = format!("127.0.0.1:{}", server.midi_port());
    let connection = redis::Client::open(url.replace("{}", &address))?.get_connection()?;
    connection.set_read_timeout(Some(crate::common::HANG))?;
    Ok(connection)
}

/// Every way to connect: both protocols, TCP and the unix socket.
fn connections(server: &Server) -> Vec<(&'static str, Connection)> {
    let socket = server.midi_socket().display().to_string();
    let ways = ["redis://{}/", "redis://{}/?protocol=resp3", "unix://S", "unix://S?protocol=resp3"];
    ways.map(|url| (url, connect(server, &url.replace('S', &socket)).expect(url))).into()
}

fn on_every_connection(body: impl Fn(&Server, &mut Connection)) {
    in_all_modes(|_, server| {
        for (url, mut connection) in connections(server) {
            println!("{url}");
            body(server, &mut connection);
            connection.flushdb::<()>().expect("FLUSHDB");
        }
    });
}

#[test]
fn commands_work() {
    on_every_connection(|_, redis| {
        assert!(redis.check_connection());
        let () = redis.set("k", 42).unwrap();
        assert_eq!(redis.get("k"), Ok(42));
        assert_eq!(redis.get("nosuch"), Ok(None::<String>));
        let bytes: Vec<u8> = (0..=255).chain(*b"\r\n$-1\r\n").collect();
        let () = redis.set(&bytes, &bytes).unwrap();
        assert_eq!(redis.get(&bytes), Ok(bytes.clone()));
        assert_eq!(redis.del(&[&bytes]), Ok(1));
        let () = redis.mset(&[("a", "1"), ("b", "2")]).unwrap();
        let values: Vec<Option<String>> = redis.mget(&["a", "nosuch", "b"]).unwrap();
        assert_eq!(values, [Some("1".to_owned()), None, Some("2".to_owned())]);
        assert_eq!(redis.exists(&["a", "b", "nosuch"]), Ok(2));
        assert_eq!(redis.incr("n", 5), Ok(5));
        assert_eq!(redis.decr("n", 2), Ok(3));
        assert_eq!(redis.incr("fraction", 0.25), Ok(0.25));
        assert_eq!(redis.append("text", "abc"), Ok(3));
        assert_eq!(redis.getrange("text", 1, 2), Ok("bc".to_owned()));
        assert_eq!(redis.set_nx("text", "other"), Ok(false));
        assert_eq!(redis.getset("text", "new"), Ok("abc".to_owned()));
        assert_eq!(redis.rename_nx("text", "renamed"), Ok(true));
        assert_eq!(redis.expire("renamed", 1000), Ok(true));
        let left: i64 = redis.ttl("renamed").unwrap();
        assert!((900..=1000).contains(&left), "{left}");
        assert_eq!(redis.persist("renamed"), Ok(true));
        assert_eq!(redis.get_del("renamed"), Ok("new".to_owned()));
        assert_eq!(redis.key_type("a"), Ok(redis::ValueType::String));
        let mut keys: Vec<String> = redis.keys("*").unwrap();
        keys.sort();
        assert_eq!(keys, ["a", "b", "fraction", "k", "n"]);
        let size: i64 = redis::cmd("DBSIZE").query(redis).unwrap();
        assert_eq!(size, 5);
    });
}

#[test]
fn keys_expire() {
    on_every_connection(|_, redis| {
        let () = redis.pset_ex("short", "v", 20).unwrap();
        let () = redis.set_ex("long", "v", 1000).unwrap();
        wait_until("it is over", || redis.exists("short") == Ok(false));
        assert_eq!(redis.exists("long"), Ok(true));
    });
}

#[test]
fn scans_give_every_key() {
    on_every_connection(|_, redis| {
        let mut pipeline = redis::pipe();
        for number in 0..3000 {
            pipeline.set(format!("key:{number}"), number).ignore();
        }
        let () = pipeline.query(redis).unwrap();
        let mut keys: Vec<String> = redis.scan().unwrap().collect::<RedisResult<_>>().unwrap();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 3000);
        let some: Vec<String> =
            redis.scan_match("key:299?").unwrap().collect::<RedisResult<_>>().unwrap();
        assert_eq!(some.len(), 10);
    });
}

#[test]
fn pipelines_are_answered_in_order() {
    on_every_connection(|_, redis| {
        let mut pipeline = redis::pipe();
        for number in 0..10_000 {
            pipeline.set(format!("key:{}", number % 1000), number).ignore();
            pipeline.get(format!("key:{}", number % 1000));
        }
        let numbers: Vec<i64> = pipeline.query(redis).unwrap();
        assert_eq!(numbers, (0..10_000).collect::<Vec<_>>());
        // A long command between short ones.
        let (before, keys, after): (i64, Vec<String>, i64) =
            redis::pipe().get("key:1").keys("*").get("key:2").query(redis).unwrap();
        assert_eq!((before, keys.len(), after), (9001, 1000, 9002));
    });
}

#[test]
fn an_error_in_a_pipeline_is_its_commands_own() {
    on_every_connection(|_, redis| {
        let () = redis.set("text", "abc").unwrap();
        let mut pipeline = redis::pipe();
        pipeline.set("a", 1).ignore().incr("text", 1).set("b", 2).ignore();
        let error = pipeline.query::<()>(redis).expect_err("INCR of a text");
        assert!(error.to_string().contains("value is not an integer or out of range"), "{error}");
        assert_eq!(redis.mget(&["a", "b"]), Ok(vec![1, 2]));
    });
}

#[test]
fn transactions_are_carried_out_or_not() {
    on_every_connection(|_, redis| {
        let (one, two): (i64, Vec<String>) = redis::pipe()
            .atomic()
            .incr("n", 1)
            .set("a", "x")
            .ignore()
            .mget(&["a", "a"])
            .query(redis)
            .unwrap();
        assert_eq!((one, two), (1, vec!["x".to_owned(); 2]));
        // A command that is refused when queued aborts the whole transaction.
        let mut spoilt = redis::pipe();
        spoilt.atomic().set("a", "y").ignore().cmd("SET").arg("a");
        let error = spoilt.query::<()>(redis).expect_err("EXECABORT");
        assert!(error.to_string().contains("wrong number of arguments"), "{error}");
        assert_eq!(redis.get("a"), Ok("x".to_owned()));
    });
}

/// Optimistic locking, as the library offers it: no increment is lost.
#[test]
fn watch_loses_no_update() {
    in_all_modes(|_, server| {
        at_once(6, |number| {
            let protocol = if number % 2 == 0 { "" } else { "?protocol=resp3" };
            let mut redis = connect(server, &format!("redis://{{}}/{protocol}")).unwrap();
            for _ in 0..50 {
                let (next,): (i64,) = redis::transaction(&mut redis, &["n"], |redis, pipeline| {
                    let n: Option<i64> = redis.get("n")?;
                    pipeline.set("n", n.unwrap_or_default() + 1).ignore().get("n").query(redis)
                })
                .unwrap();
                assert!((1..=300).contains(&next));
            }
        });
        assert_eq!(connect(server, "redis://{}/").unwrap().get("n"), Ok(300));
    });
}

#[test]
fn the_database_of_the_url_is_chosen() {
    in_all_modes(|_, server| {
        for protocol in ["", "?protocol=resp3"] {
            for db in [0, 3, 15] {
                let mut redis = connect(server, &format!("redis://{{}}/{db}{protocol}")).unwrap();
                let () = redis.set("k", db).unwrap();
            }
            for db in [0, 3, 15] {
                let mut redis = connect(server, &format!("redis://{{}}/{db}{protocol}")).unwrap();
                assert_eq!(redis.get("k"), Ok(db));
            }
            assert!(connect(server, &format!("redis://{{}}/16{protocol}")).is_err());
        }
    });
}

#[test]
fn users_log_in() {
    in_all_modes(|_, server| {
        let mut admin = server.client();
        admin.ok("ACL SETUSER alice on >secret -@all +midi.get +get +@connection ~key*");
        admin.ok("MIDI.MSET key1 1 other 2");
        for protocol in ["", "?protocol=resp3"] {
            let mut alice =
                connect(server, &format!("redis://alice:secret@{{}}/{protocol}")).unwrap();
            let _: Option<String> = alice.get("key1").unwrap();
            for (what, refused) in
                [("SET", alice.set::<_, _, ()>("key1", 1)), ("GET", alice.get::<_, ()>("other"))]
            {
                let error = refused.expect_err(what);
                assert_eq!(error.code(), Some("NOPERM"), "{what}: {error}");
            }
            for login in ["alice:wrong", "nobody:secret"] {
                let error = connect(server, &format!("redis://{login}@{{}}/{protocol}")).err();
                let error = error.unwrap_or_else(|| panic!("{login} got in"));
                let refused = error.kind() == ErrorKind::AuthenticationFailed
                    || error.code() == Some("WRONGPASS");
                assert!(refused, "{login}: {error}");
            }
        }
        admin.ok("CONFIG SET requirepass top");
        for protocol in ["", "?protocol=resp3"] {
            assert!(connect(server, &format!("redis://:wrong@{{}}/{protocol}")).is_err());
            let mut redis = connect(server, &format!("redis://:top@{{}}/{protocol}")).unwrap();
            let () = redis.set("k", 1).unwrap();
        }
        let mut nobody = crate::common::Client::connect(server.midi_port()).expect("a connection");
        assert_eq!(nobody.run("GET k"), Value::error("NOAUTH Authentication required."));
        admin.call(&["CONFIG", "SET", "requirepass", ""]);
    });
}

#[test]
fn connections_have_names_and_numbers() {
    on_every_connection(|server, redis| {
        assert_eq!(redis.client_getname(), Ok(None::<String>));
        let () = redis.client_setname("tester").unwrap();
        assert_eq!(redis.client_getname(), Ok("tester".to_owned()));
        let id: i64 = redis.client_id().unwrap();
        assert!(id > 0);
        let info: String = redis::cmd("CLIENT").arg("INFO").query(redis).unwrap();
        let fields: HashMap<&str, &str> =
            info.split_whitespace().filter_map(|field| field.split_once('=')).collect();
        assert_eq!((fields["id"], fields["name"]), (&*id.to_string(), "tester"));
        // The library sent these about itself when it connected.
        assert_eq!(fields["lib-name"], "redis-rs", "{info}");
        let list: String = redis::cmd("CLIENT").arg("LIST").query(redis).unwrap();
        assert!(list.lines().any(|line| line.starts_with(&format!("id={id} "))), "{list}");
        assert!(server.midi_client().run("CLIENT LIST").text().contains("name=tester"));
    });
}

/// Values larger than every buffer on the way.
#[test]
fn large_values_come_back_whole() {
    on_every_connection(|_, redis| {
        for len in [16 << 10, 1 << 20, 30 << 20] {
            let value: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let () = redis.set("large", &value).unwrap();
            assert!(redis.get::<_, Vec<u8>>("large").unwrap() == value, "{len} bytes");
        }
    });
}

/// The library notices that the server has closed a connection, and a new one works.
#[test]
fn a_killed_connection_is_told() {
    in_all_modes(|_, server| {
        let mut redis = connect(server, "redis://{}/").unwrap();
        redis.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let id: i64 = redis.client_id().unwrap();
        let mut other = server.midi_client();
        assert_eq!(other.run(&format!("CLIENT KILL ID {id}")), Value::Integer(1));
        let error = redis.get::<_, ()>("k").expect_err("it is closed");
        assert!(error.is_connection_dropped() || error.is_io_error(), "{error}");
        assert!(!redis.is_open());
        let () = connect(server, "redis://{}/").unwrap().set("k", 1).unwrap();
    });
}

/// One keyspace, whichever door a client takes.
#[test]
fn both_doors_lead_to_the_same_keys() {
    on_every_connection(|server, redis| {
        let mut host = server.client();
        let () = redis.set("from-port", 1).unwrap();
        assert_eq!(host.run("MIDI.GET from-port"), Value::bulk("1"));
        host.ok("MIDI.SET from-host 2");
        assert_eq!(redis.get("from-host"), Ok(2));
        let both: i64 = redis::cmd("MIDI.INCR").arg("from-host").query(redis).unwrap();
        assert_eq!(both, 3);
        assert!(host.run("GET from-port").is_null(), "the host's own keyspace is another one");
    });
}
