"""redis-py against midi's port: what a program that knows nothing of midi does.

Environment: MIDI_PORT and MIDI_SOCKET, where midi listens; MIDI_TLS_PORT and
MIDI_TLS_CA, its port for TLS and who signs there; MIDI_HOST_PORT, the host's own port.
"""

import os
import sys
import threading
import time
import unittest

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

PORT = int(os.environ["MIDI_PORT"])
SOCKET = os.environ["MIDI_SOCKET"]
TLS = {
    "port": int(os.environ["MIDI_TLS_PORT"]),
    "ssl": True,
    "ssl_ca_certs": os.environ["MIDI_TLS_CA"],
}
HOST_PORT = int(os.environ["MIDI_HOST_PORT"])

# Longer than anything here takes: a guard against hangs.
HANG = 90

WAYS = {
    "RESP2": {"protocol": 2},
    "RESP3": {"protocol": 3},
    "the default": {},
    "unix socket": {"unix_socket_path": SOCKET},
    "TLS": TLS,
    "TLS, RESP3": {**TLS, "protocol": 3},
    "unix socket, RESP3": {"unix_socket_path": SOCKET, "protocol": 3},
}


def connect(**options):
    if "unix_socket_path" not in options:
        options.setdefault("port", PORT)
    return redis.Redis(socket_timeout=HANG, **options)


def admin():
    """The host's own port: users and settings are made there."""
    return redis.Redis(port=HOST_PORT, socket_timeout=HANG, decode_responses=True)


def text(reply):
    """A reply that some versions of the library decode, and some do not."""
    if isinstance(reply, list):
        return [text(element) for element in reply]
    return reply.decode() if isinstance(reply, bytes) else reply


def on_every_way(test):
    """Runs a test with a client for each way to connect."""

    def run(self):
        for name, options in WAYS.items():
            with self.subTest(name), connect(**options) as client:
                client.execute_command("FLUSHALL")
                test(self, client)

    return run


def wait_until(done):
    until = time.monotonic() + HANG
    while not done():
        if time.monotonic() > until:
            raise AssertionError("waited too long")
        time.sleep(0.005)


class Commands(unittest.TestCase):
    @on_every_way
    def test_strings(self, r):
        self.assertTrue(r.ping())
        self.assertEqual(r.echo("text"), b"text")
        self.assertIs(r.set("k", "v"), True)
        self.assertEqual(r.get("k"), b"v")
        self.assertIsNone(r.get("nosuch"))
        self.assertIsNone(r.set("k", "w", nx=True))
        self.assertEqual(r.set("k", "w", get=True), b"v")
        self.assertIs(r.mset({"a": 1, "b": 2}), True)
        self.assertEqual(r.mget("a", "nosuch", "b"), [b"1", None, b"2"])
        self.assertIs(r.msetnx({"a": 3, "c": 3}), False)
        self.assertEqual(r.append("k", "xyz"), 4)
        self.assertEqual(r.strlen("k"), 4)
        self.assertEqual(r.getrange("k", 1, 2), b"xy")
        self.assertEqual(r.setrange("k", 1, "--"), 4)
        self.assertEqual(r.get("k"), b"w--z")
        self.assertEqual(r.getdel("k"), b"w--z")
        self.assertEqual(r.exists("a", "b", "k"), 2)
        self.assertEqual(r.delete("a", "k"), 1)
        self.assertEqual(r.unlink("b"), 1)
        self.assertEqual(r.dbsize(), 0)

    @on_every_way
    def test_numbers(self, r):
        self.assertEqual(r.incr("n"), 1)
        self.assertEqual(r.incrby("n", 41), 42)
        self.assertEqual(r.decr("n", 2), 40)
        self.assertEqual(r.incrbyfloat("n", 0.5), 40.5)
        self.assertEqual(r.get("n"), b"40.5")

    @on_every_way
    def test_bytes(self, r):
        everything = bytes(range(256))
        for value in [b"", b"\0", b"\r\n", b"$-1\r\n", everything, everything * 1000]:
            self.assertTrue(r.set(value, value))
            self.assertEqual(r.get(value), value)

    @on_every_way
    def test_expiry(self, r):
        r.set("k", "v", ex=1000)
        self.assertTrue(900 < r.ttl("k") <= 1000)
        self.assertTrue(900_000 < r.pttl("k") <= 1_000_000)
        self.assertTrue(r.persist("k"))
        self.assertEqual(r.ttl("k"), -1)
        self.assertEqual(r.ttl("nosuch"), -2)
        self.assertTrue(r.expireat("k", 4102444800))
        self.assertEqual(r.expiretime("k"), 4102444800)
        self.assertFalse(r.expire("k", 100, gt=True))
        self.assertTrue(r.pexpire("k", 20))
        wait_until(lambda: r.get("k") is None)

    @on_every_way
    def test_keys(self, r):
        r.mset({f"key:{number}": number for number in range(5)})
        self.assertEqual(sorted(r.keys("key:[0-2]")), [b"key:0", b"key:1", b"key:2"])
        self.assertEqual(r.type("key:0"), b"string")
        self.assertTrue(r.rename("key:0", "other"))
        self.assertFalse(r.renamenx("other", "key:1"))
        self.assertTrue(r.copy("other", "copied"))
        self.assertEqual(r.object("encoding", "copied"), b"int")
        self.assertTrue(r.move("copied", 1))
        payload = r.dump("other")
        self.assertTrue(r.restore("restored", 0, payload))
        self.assertEqual(r.get("restored"), b"0")
        self.assertIn(r.randomkey(), r.keys())
        self.assertEqual(r.touch("other", "nosuch"), 1)
        self.assertGreater(r.memory_usage("other"), 0)
        with self.assertRaises(redis.ResponseError):
            r.rename("nosuch", "k")

    @on_every_way
    def test_scan(self, r):
        r.mset({f"key:{number}": number for number in range(3000)})
        self.assertEqual(len(set(r.scan_iter())), 3000)
        self.assertEqual(len(set(r.scan_iter(match="key:1*", count=500))), 1111)
        cursor, keys = r.scan(0, count=100_000)
        self.assertEqual((int(cursor), len(keys)), (0, 3000))

    def test_decoded_responses(self):
        for protocol in (2, 3):
            with connect(protocol=protocol, decode_responses=True) as r:
                r.flushdb()
                r.set("k", "grün")
                self.assertEqual(r.get("k"), "grün")
                self.assertEqual(r.mget("k", "nosuch"), ["grün", None])
                self.assertIn("k", r.keys())
                self.assertEqual(r.type("k"), "string")

    def test_databases(self):
        for db in (0, 3, 15):
            with connect(db=db) as r:
                r.set("k", db)
        for db in (0, 3, 15):
            with redis.Redis.from_url(f"redis://127.0.0.1:{PORT}/{db}") as r:
                self.assertEqual(r.get("k"), b"%d" % db)
        with self.assertRaises(redis.ResponseError):
            connect(db=16).ping()


class Pipelines(unittest.TestCase):
    @on_every_way
    def test_plain(self, r):
        pipeline = r.pipeline(transaction=False)
        for number in range(10_000):
            pipeline.set(f"key:{number % 100}", number).get(f"key:{number % 100}")
        replies = pipeline.execute()
        self.assertEqual(replies[1::2], [b"%d" % number for number in range(10_000)])

    @on_every_way
    def test_transaction(self, r):
        replies = r.pipeline().set("a", 1).incr("a").mget("a", "b").keys("*").execute()
        self.assertEqual(replies, [True, 2, [b"2", None], [b"a"]])

    @on_every_way
    def test_an_error_is_its_commands_own(self, r):
        r.set("text", "abc")
        for transaction in (False, True):
            pipeline = r.pipeline(transaction=transaction).set("a", 1).incr("text").set("b", 2)
            replies = pipeline.execute(raise_on_error=False)
            self.assertEqual((replies[0], replies[2]), (True, True))
            self.assertIsInstance(replies[1], redis.ResponseError)
            self.assertRegex(str(replies[1]), "not an integer or out of range")
        refused = r.pipeline().set("a", 3).execute_command("GET")
        with self.assertRaises(redis.ResponseError):
            refused.execute()
        self.assertEqual(r.get("a"), b"1")

    @on_every_way
    def test_watch(self, r):
        other = connect()
        pipeline = r.pipeline()
        pipeline.watch("k")
        other.set("k", 1)
        pipeline.multi()
        pipeline.set("k", 2)
        with self.assertRaises(redis.WatchError):
            pipeline.execute()
        self.assertEqual(r.get("k"), b"1")
        pipeline.watch("k")
        other.set("another", 1)
        pipeline.multi()
        self.assertEqual(pipeline.set("k", 3).execute(), [True])
        pipeline.watch("k")
        other.set("k", 4)
        pipeline.unwatch()
        pipeline.multi()
        self.assertEqual(pipeline.get("k").execute(), [b"4"])

    def test_watch_loops_lose_nothing(self):
        connect().delete("n")

        def count():
            with connect() as r:
                for _ in range(50):
                    r.transaction(step, "n")

        def step(pipeline):
            n = int(pipeline.get("n") or 0)
            pipeline.multi()
            pipeline.set("n", n + 1)

        threads = [threading.Thread(target=count) for _ in range(6)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(connect().get("n"), b"300")


class Connections(unittest.TestCase):
    @on_every_way
    def test_names(self, r):
        # One connection for all that follows.
        with r.client() as c:
            self.assertIsNone(c.client_getname())
            self.assertTrue(c.client_setname("tester"))
            self.assertEqual(text(c.client_getname()), "tester")
            info = c.client_info()
            self.assertEqual((int(info["id"]), info["name"]), (c.client_id(), "tester"))
            self.assertEqual(info["lib-name"], "redis-py")
            listed = [client["id"] for client in r.client_list()]
            self.assertIn(str(c.client_id()), listed)

    def test_the_name_of_the_settings(self):
        for protocol in (2, 3):
            with connect(client_name="from-settings", protocol=protocol, decode_responses=True) as r:
                self.assertEqual(r.client_getname(), "from-settings")

    @on_every_way
    def test_a_killed_connection_is_replaced(self, r):
        victim = connect(single_connection_client=True)
        number = victim.client_id()
        self.assertEqual(r.client_kill_filter(_id=number), 1)
        self.assertTrue(victim.ping())
        self.assertNotEqual(victim.client_id(), number)

    @on_every_way
    def test_a_killed_connection_is_told_without_retries(self, r):
        victim = connect(single_connection_client=True, retry=Retry(NoBackoff(), 0))
        r.client_kill_filter(_id=victim.client_id())
        with self.assertRaises(redis.ConnectionError):
            victim.ping()

    def test_health_checks(self):
        with connect(health_check_interval=1) as r:
            self.assertTrue(r.set("k", 1))
            time.sleep(1.2)
            self.assertEqual(r.get("k"), b"1")

    def test_a_pool_of_many(self):
        pool = redis.ConnectionPool(port=PORT, max_connections=20, socket_timeout=HANG)
        errors = []

        def work(number):
            r = redis.Redis(connection_pool=pool)
            for step in range(200):
                r.set(f"key:{number}", step)
                if r.get(f"key:{number}") != b"%d" % step:
                    errors.append((number, step))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(errors, [])
        pool.disconnect()

    def test_a_blocking_pool(self):
        pool = redis.BlockingConnectionPool(port=PORT, max_connections=2, timeout=HANG, socket_timeout=HANG)
        threads = [threading.Thread(target=redis.Redis(connection_pool=pool).incr, args=("pooled",)) for _ in range(30)]
        connect().delete("pooled")
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(connect().get("pooled"), b"30")
        pool.disconnect()

    def test_quit_ends_the_connection(self):
        r = connect(single_connection_client=True, protocol=2)
        self.assertTrue(r.quit())
        self.assertTrue(r.ping())

    def test_reset_forgets_everything(self):
        with connect(single_connection_client=True, protocol=2, db=3, client_name="before") as r:
            self.assertEqual(text(r.execute_command("RESET")), "RESET")
            self.assertIsNone(r.client_getname())
            self.assertEqual(int(r.client_info()["db"]), 0)


class Server(unittest.TestCase):
    @on_every_way
    def test_info(self, r):
        info = r.info()
        self.assertIn("redis_version", info)
        self.assertIn("used_memory", info)
        self.assertIn("redis_version", r.info("server"))

    @on_every_way
    def test_config_get(self, r):
        self.assertEqual(int(r.config_get("databases")["databases"]), 16)
        self.assertIn("maxmemory-policy", r.config_get("maxmemory*"))
        self.assertEqual(r.config_get("nosuch"), {})

    @on_every_way
    def test_time(self, r):
        seconds, micros = r.time()
        self.assertLess(abs(seconds - time.time()), 60)
        self.assertTrue(0 <= micros < 1_000_000)

    @on_every_way
    def test_commands(self, r):
        known = r.command()
        self.assertGreater(r.command_count(), 50)
        self.assertIn("get", known)
        self.assertEqual(known["get"]["arity"], 2)
        self.assertIn("set", text(r.command_list()))
        self.assertEqual(text(r.command_getkeys("MSET", "a", 1, "b", 2)), ["a", "b"])

    @on_every_way
    def test_command_docs(self, r):
        # The library has no function for it.
        docs = r.execute_command("COMMAND DOCS", "GET")
        names = docs.keys() if isinstance(docs, dict) else docs[::2]
        self.assertEqual(text(list(names)), ["get"])

    @on_every_way
    def test_whoami(self, r):
        self.assertEqual(text(r.acl_whoami()), "default")


class Errors(unittest.TestCase):
    @on_every_way
    def test_wrong_commands(self, r):
        for args, text in [
            (("NOSUCH",), "unknown command"),
            (("GET",), "wrong number of arguments for 'get' command"),
            (("SET", "k", "v", "EX", "0"), "invalid expire time in 'set' command"),
            (("SET", "k", "v", "WHAT"), "syntax error"),
            (("SELECT", "16"), "DB index is out of range"),
        ]:
            with self.assertRaisesRegex(redis.ResponseError, text):
                r.execute_command(*args)
        self.assertTrue(r.ping())

    def test_logins(self):
        with admin() as a:
            a.execute_command("ACL SETUSER alice on >secret -@all +midi.get +get +@connection ~key*")
            try:
                for protocol in (2, 3):
                    self.check_login(a, protocol)
            finally:
                a.config_set("requirepass", "")

    def check_login(self, a, protocol):
        def client(**options):
            return connect(protocol=protocol, retry=Retry(NoBackoff(), 0), **options)

        with client(username="alice", password="secret") as alice:
            alice.get("key1")
            with self.assertRaises(redis.exceptions.NoPermissionError):
                alice.set("key1", 1)
            with self.assertRaises(redis.exceptions.NoPermissionError):
                alice.get("other")
        for user, password in [("alice", "wrong"), ("nobody", "secret")]:
            with self.assertRaises(redis.AuthenticationError) as caught:
                client(username=user, password=password).ping()
            self.assertRegex(str(caught.exception), "invalid username-password pair|WRONGPASS")
        a.config_set("requirepass", "top")
        with self.assertRaises(redis.AuthenticationError):
            client().get("k")
        with client(password="top") as r:
            self.assertTrue(r.ping())
        # The test's own connection is still that of a user without a password.
        a.config_set("requirepass", "")


class Amounts(unittest.TestCase):
    @on_every_way
    def test_a_megabyte(self, r):
        value = os.urandom(1 << 20)
        for _ in range(5):
            r.set("large", value)
            self.assertTrue(r.get("large") == value)
        self.assertTrue(all(one == value for one in r.mget(["large"] * 10)))

    def test_a_hundred_megabytes(self):
        value = os.urandom(100 << 20)
        with connect() as r:
            r.set("huge", value)
            self.assertEqual(r.strlen("huge"), len(value))
            self.assertTrue(r.get("huge") == value)
            self.assertEqual(r.delete("huge"), 1)

    def test_many_keys(self):
        with connect() as r:
            r.flushdb()
            for part in range(5):
                pipeline = r.pipeline(transaction=False)
                for number in range(part * 10_000, (part + 1) * 10_000):
                    pipeline.set(f"key:{number}", number)
                pipeline.execute()
            self.assertEqual(r.dbsize(), 50_000)
            self.assertEqual(len(r.keys("*")), 50_000)
            self.assertEqual(sum(1 for _ in r.scan_iter(match="key:77*", count=1000)), 111)
            self.assertEqual(r.delete(*[f"key:{number}" for number in range(5000)]), 5000)
            self.assertTrue(r.flushdb())
            self.assertEqual(r.dbsize(), 0)


if __name__ == "__main__":
    print("redis-py", redis.__version__, "on Python", sys.version.split()[0])
    unittest.main()
