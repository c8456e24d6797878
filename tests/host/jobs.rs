//! The promise: MIDI.JOBS shows long commands and ends them, MIDI.HELP lists all commands, and
//! MIDI.POPULATE makes the keys of DEBUG POPULATE.

use super::commands::{ROWS, names};
use crate::common::{Client, Mode, Server, Value, in_all_modes, wait_until};

#[test]
fn help_has_a_line_for_every_command() {
    in_all_modes(|_, server| {
        let two = server.client().run("MIDI.HELP");
        assert_eq!(server.client().resp3().run("MIDI.HELP"), two);
        let lines = two.array();
        assert_eq!(lines.len(), ROWS.len());
        for row in &ROWS {
            let begin = format!("MIDI.{} -- ", row.name.to_uppercase());
            assert_eq!(
                lines.iter().filter(|line| line.text().starts_with(&begin)).count(),
                1,
                "{begin}"
            );
        }
        for line in ["MIDI.HELP x", "MIDI.HELP GET SET"] {
            let reply = server.client().run(line);
            assert_eq!(
                reply,
                Value::error("ERR wrong number of arguments for 'midi.help' command")
            );
        }
    });
}

/// The fields of a job, in RESP2 order.
const JOB_FIELDS: [&str; 8] =
    ["id", "command", "database", "client", "door", "done", "total", "elapsed"];

/// More keys than POPULATE makes before the test ends it.
const MANY: i64 = 30_000_000;

/// A client with a running POPULATE in database 2.
fn populating(server: &Server) -> Client {
    let mut client = server.client();
    client.ok("SELECT 2");
    client.send_line(&format!("MIDI.POPULATE {MANY}"));
    let mut watcher = server.client();
    wait_until("it runs", || !watcher.run("MIDI.JOBS").array().is_empty());
    client
}

#[test]
fn jobs_shows_what_runs() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let (mut two, mut three) = (server.client(), server.client().resp3());
        assert_eq!(two.run("MIDI.JOBS"), Value::Array(vec![]));
        assert_eq!(three.run("MIDI.JOBS"), Value::Array(vec![]));
        let mut busy = populating(&server);
        let jobs = two.run("midi.jobs").array();
        assert_eq!(jobs.len(), 1);
        let flat = jobs[0].clone().array();
        let names: Vec<_> = flat.iter().step_by(2).map(Value::text).collect();
        assert_eq!(names, JOB_FIELDS);
        check_job(&jobs[0]);
        let jobs = three.run("MIDI.JOBS").array();
        assert!(matches!(&jobs[0], Value::Map(pairs) if pairs.len() == 8), "{jobs:?}");
        check_job(&jobs[0]);
        let line = &two.info("midi_jobs")["midi_job1"];
        assert!(
            line.starts_with("command=populate,db=2,client=") && line.contains(",door=host,"),
            "{line}"
        );
        two.ok("MIDI.JOBS CANCEL 1");
        assert!(busy.read().is_error());
        server.wait_until_idle();
    }
}

#[track_caller]
fn check_job(job: &Value) {
    let job = job.clone().map();
    assert_eq!(job["id"], Value::Integer(1));
    assert_eq!(job["database"], Value::Integer(2));
    assert_eq!(job["command"], Value::bulk("populate"));
    assert_eq!(job["total"], Value::Integer(MANY));
    assert!((0..=MANY).contains(&job["done"].integer()));
    assert!(job["client"].integer() > 0 && job["elapsed"].integer() >= 0);
}

#[test]
fn jobs_cancel_ends_a_job() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        let mut client = server.client();
        client.ok("SELECT 2");
        let mut busy = populating(&server);
        for line in ["MIDI.JOBS CANCEL 2", "MIDI.JOBS CANCEL 0", "MIDI.JOBS CANCEL -1"] {
            assert_eq!(client.run(line), Value::error("ERR no such job"), "{line}");
        }
        assert_eq!(client.run("midi.jobs cancel 1"), Value::ok());
        assert_eq!(busy.read(), Value::error("ERR job 1 was cancelled by MIDI.JOBS CANCEL"));
        server.wait_until_idle();
        assert_eq!(client.run("MIDI.JOBS CANCEL 1"), Value::error("ERR no such job"));
        let left = client.integer("MIDI.DBSIZE");
        assert!(left < MANY, "{left}");
        busy.ok("MIDI.FLUSHDB SYNC");
        busy.ok("MIDI.POPULATE 10");
        assert_eq!(busy.integer("MIDI.DBSIZE"), 10);
    }
}

#[test]
fn jobs_refuses_wrong_arguments() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for line in
            ["MIDI.JOBS LIST", "MIDI.JOBS CANCEL", "MIDI.JOBS CANCEL 1 2", "MIDI.JOBS KILL 1"]
        {
            assert_eq!(client.run(line), Value::error("ERR syntax error"), "{line}");
        }
        let reply = client.run("MIDI.JOBS CANCEL abc");
        assert_eq!(reply, Value::error("ERR value is not an integer or out of range"));
    });
}

#[test]
fn midi_help_lists_every_command() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        let lines: Vec<String> = client.run("MIDI.HELP").array().iter().map(Value::text).collect();
        for name in names() {
            let name = name.to_uppercase();
            assert!(
                lines.iter().any(|line| line.split([' ', '\t']).next() == Some(&name)),
                "{name}"
            );
        }
        assert!(client.run("MIDI.HELP x").is_error());
    });
}

fn jobs_of(server: &Server, resp3: bool) -> Vec<Value> {
    let mut client = server.client();
    client = if resp3 { client.resp3() } else { client };
    client.run("MIDI.JOBS").array()
}

#[test]
fn midi_jobs_shows_what_runs() {
    for mode in Mode::with_jobs() {
        let server = mode.server();
        assert!(jobs_of(&server, false).is_empty());
        let mut client = server.client();
        client.ok("SELECT 3");
        let id = client.id();
        // More keys than POPULATE makes before the test ends it.
        client.send_line("MIDI.POPULATE 30000000");
        wait_until("the job runs", || !jobs_of(&server, false).is_empty());
        let mut number = 0;
        for resp3 in [false, true] {
            let job = jobs_of(&server, resp3).remove(0);
            assert_eq!(matches!(job, Value::Map(_)), resp3);
            let job = job.map();
            assert_eq!(job["command"].text(), "populate");
            assert_eq!(job["database"], Value::Integer(3));
            assert_eq!(
                (&job["client"], job["door"].text()),
                (&Value::Integer(id), "host".to_owned())
            );
            assert_eq!(job["total"], Value::Integer(30_000_000));
            assert!((0..=30_000_000).contains(&job["done"].integer()));
            number = job["id"].integer();
            assert!(number > 0 && job["elapsed"].integer() >= 0);
        }
        let mut admin = server.client();
        let fields = admin.info("midi_jobs");
        assert!(
            fields.values().any(|value| value.starts_with("command=populate,db=3,")),
            "{fields:?}"
        );
        for line in
            ["MIDI.JOBS CANCEL", "MIDI.JOBS NOSUCH", "MIDI.JOBS CANCEL 1 2", "MIDI.JOBS KILL 1"]
        {
            assert!(admin.run(line).is_error(), "{line}");
        }
        assert_eq!(
            admin.run("MIDI.JOBS CANCEL abc"),
            Value::error("ERR value is not an integer or out of range")
        );
        admin.ok(&format!("MIDI.JOBS CANCEL {number}"));
        assert!(client.read().is_error());
    }
}

/// MIDI.POPULATE makes the same keys as DEBUG POPULATE.
#[test]
fn populate_is_debug_populate() {
    in_all_modes(|_, server| {
        let mut client = server.client();
        for arguments in
            ["100", "50 p", "30 q 5", "30 r 100", "0", "5 z 0", "20 long-prefix-of-a-name 1"]
        {
            client.ok(&format!("DEBUG POPULATE {arguments}"));
            client.ok(&format!("MIDI.POPULATE {arguments}"));
            let keys = client.run("KEYS *").sorted();
            assert_eq!(keys, client.run("MIDI.KEYS *").sorted(), "{arguments}");
            for key in keys {
                assert_eq!(
                    client.call(&[b"GET".as_slice(), key.bytes()]),
                    client.call(&[b"MIDI.GET".as_slice(), key.bytes()])
                );
            }
        }
        // Existing keys keep their values.
        client.ok("MIDI.SET key:7 mine");
        client.ok("MIDI.POPULATE 200");
        assert_eq!(client.run("MIDI.GET key:7"), Value::bulk("mine"));
        for line in [
            "MIDI.POPULATE",
            "MIDI.POPULATE abc",
            "MIDI.POPULATE -1",
            "MIDI.POPULATE 1 p -1",
            "MIDI.POPULATE 1 p 1 x",
        ] {
            assert!(client.run(line).is_error(), "{line}");
        }
    });
}
