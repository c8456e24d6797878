"""Libraries for locks, rate limits and caches, unchanged, against midi's port.

Environment: MIDI_PORT, where midi listens; MIDI_HOST_PORT, the host's own port.
"""

import os
import threading
import time
import unittest

import django
import redis
import redis_lock
from celery import Celery
from celery.result import AsyncResult
from django.conf import settings
from flask import Flask
from flask_limiter import Limiter
from limits import RateLimitItemPerMinute, storage, strategies
from redlock import Redlock

PORT = int(os.environ["MIDI_PORT"])
HOST_PORT = int(os.environ["MIDI_HOST_PORT"])
URL = f"redis://127.0.0.1:{PORT}"

# Longer than anything here takes: a guard against hangs.
HANG = 90

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"{URL}/1",
            "OPTIONS": {"CLIENT_CLASS": "django_redis.client.DefaultClient"},
        }
    }
)
django.setup()


def connect():
    return redis.Redis(port=PORT, socket_timeout=HANG)


def in_threads(count, run):
    """Runs `run` in this many threads at once; their exceptions are raised here."""
    failed = []

    def guarded():
        try:
            run()
        except Exception as error:  # pylint: disable=broad-except
            failed.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
    if failed:
        raise failed[0]


class Libraries(unittest.TestCase):
    def setUp(self):
        connect().flushall()

    def tearDown(self):
        # Nothing of all this is in the host's own keyspace.
        self.assertEqual(redis.Redis(port=HOST_PORT).dbsize(), 0)

    def counts_under(self, lock_of):
        """A counter that is read and then set, by several threads, under a lock."""
        client = connect()
        client.set("counter", 0)

        def count():
            own = connect()
            for _ in range(20):
                with lock_of(own):
                    own.set("counter", int(own.get("counter")) + 1)

        in_threads(4, count)
        self.assertEqual(int(client.get("counter")), 80)

    def test_lock_of_redis_py(self):
        self.counts_under(lambda client: client.lock("lock", timeout=HANG, sleep=0.001))
        client = connect()
        lock = client.lock("lock", timeout=10)
        self.assertTrue(lock.acquire(blocking=False))
        self.assertFalse(connect().lock("lock").acquire(blocking=False))
        lock.extend(20)
        self.assertGreater(client.pttl("lock"), 10_000)
        lock.reacquire()
        lock.release()
        self.assertFalse(client.exists("lock"))
        with self.assertRaises(redis.exceptions.LockError):
            lock.release()

    def test_python_redis_lock(self):
        """Its lock waits with BLPOP, which midi does not have: it fails, and says so."""
        lock = redis_lock.Lock(connect(), "name", expire=10)
        self.assertTrue(lock.acquire(blocking=False))
        self.assertFalse(redis_lock.Lock(connect(), "name").acquire(blocking=False))
        with self.assertRaisesRegex(redis.exceptions.ResponseError, "blpop"):
            redis_lock.Lock(connect(), "name", expire=10).acquire()
        with self.assertRaisesRegex(redis.exceptions.ResponseError, "lpush"):
            lock.release()

    def test_redlock_py(self):
        locks = Redlock([{"host": "127.0.0.1", "port": PORT}], retry_count=1)
        lock = locks.lock("resource", 10_000)
        self.assertTrue(lock)
        self.assertFalse(locks.lock("resource", 10_000))
        locks.unlock(lock)
        self.assertFalse(connect().exists("resource"))
        self.assertTrue(locks.lock("resource", 10_000))

    def test_django_redis(self):
        from django.core.cache import cache

        cache.set("n", 0)
        in_threads(4, lambda: [cache.incr("n") for _ in range(50)])
        self.assertEqual(cache.get("n"), 200)
        self.assertEqual(cache.decr("n", 150), 50)
        with self.assertRaises(ValueError):
            cache.incr("missing")
        with cache.lock("lock", timeout=10):
            self.assertFalse(cache.lock("lock").acquire(blocking=False))
        cache.delete_pattern("*")
        self.assertIsNone(cache.get("n"))

    def test_hashes_of_django_redis(self):
        from django.core.cache import cache

        self.assertEqual(cache.hset("h", "f", {"any": ["object", 1.5]}), 1)
        self.assertEqual(cache.hset("h", mapping={"f": 1, "g": None, "ünicode": "ü"}), 2)
        self.assertEqual(sorted(cache.hkeys("h")), ["f", "g", "ünicode"])
        self.assertEqual(cache.hlen("h"), 3)
        self.assertTrue(cache.hexists("h", "g"))
        self.assertEqual(cache.hdel("h", "g"), 1)
        self.assertFalse(cache.hexists("h", "g"))
        self.assertTrue(cache.expire("h", 100))
        self.assertGreater(cache.ttl("h"), 0)
        self.assertTrue(cache.delete("h"))
        self.assertEqual(cache.hlen("h"), 0)

    def test_a_session_in_a_hash(self):
        """The commands that Spring Session sends: attributes are fields, and one expiry is for all
        of them; a new id is a new name."""
        for protocol in (2, 3):
            client = redis.Redis(port=PORT, socket_timeout=HANG, protocol=protocol)
            now = int(time.time() * 1000)
            session = {
                "creationTime": str(now),
                "lastAccessedTime": str(now),
                "maxInactiveInterval": "1800",
                "sessionAttr:user": b"\xac\xed\x00\x05t\x00\x03Ada",
            }
            expected = {
                name.encode(): value if isinstance(value, bytes) else value.encode()
                for name, value in session.items()
            }
            pipeline = client.pipeline(transaction=False)
            # redis-py's own hmset is deprecated, and its command is not.
            pairs = [part for pair in session.items() for part in pair]
            pipeline.execute_command("HMSET", "sessions:old", *pairs)
            pipeline.expire("sessions:old", 1800)
            self.assertEqual([bool(reply) for reply in pipeline.execute()], [True, True])
            self.assertEqual(client.hgetall("sessions:old"), expected)
            self.assertEqual(client.hset("sessions:old", "lastAccessedTime", str(now + 5)), 0)
            self.assertGreater(client.ttl("sessions:old"), 1700)
            self.assertTrue(client.rename("sessions:old", "sessions:new"))
            self.assertEqual(client.hgetall("sessions:old"), {})
            found = client.hmget("sessions:new", "lastAccessedTime", "sessionAttr:nosuch")
            self.assertEqual(found, [str(now + 5).encode(), None])
            self.assertEqual(client.hdel("sessions:new", "sessionAttr:user"), 1)
            self.assertEqual(client.type("sessions:new"), b"hash")
            found = dict(client.hscan_iter("sessions:new", match="*Time"))
            self.assertEqual(len(found), 2)
            self.assertEqual(client.delete("sessions:new"), 1)

    def test_a_limiter_that_counts_in_a_hash(self):
        """As Laravel's does it: a script reads the window's fields, and begins another window or
        counts in this one."""
        script = """
            local now, seconds, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
            local window = redis.call('HMGET', KEYS[1], 'begin', 'ends', 'count')
            if not window[1] or now > tonumber(window[2]) then
                redis.call('HMSET', KEYS[1], 'begin', now, 'ends', now + seconds, 'count', 1)
                redis.call('EXPIRE', KEYS[1], seconds * 2)
                return {1, most - 1}
            end
            local count = redis.call('HINCRBY', KEYS[1], 'count', 1)
            return {count <= most and 1 or 0, math.max(0, most - count)}
        """
        limit = connect().register_script(script)
        replies = []
        in_threads(
            4, lambda: [replies.append(tuple(limit(["l"], [1000, 60, 10]))) for _ in range(5)]
        )
        expected = [(1, left) for left in range(10)] + [(0, 0)] * 10
        self.assertEqual(sorted(replies), sorted(expected))
        self.assertEqual(limit(["l"], [1061, 60, 10]), [1, 9])
        self.assertEqual(connect().hget("l", "ends"), b"1121")

    def test_limits(self):
        store = storage.storage_from_string(URL)
        self.assertTrue(store.check())
        limit = RateLimitItemPerMinute(5)
        kinds = [strategies.FixedWindowRateLimiter, strategies.SlidingWindowCounterRateLimiter]
        for kind in kinds:
            limiter = kind(store)
            name = kind.__name__
            # Not across the end of a minute.
            while time.time() % 60 > 55:
                time.sleep(0.1)
            allowed = [limiter.hit(limit, name) for _ in range(8)]
            self.assertEqual(allowed, [True] * 5 + [False] * 3, name)
            self.assertEqual(limiter.get_window_stats(limit, name).remaining, 0)
            limiter.clear(limit, name)
            self.assertTrue(limiter.hit(limit, name))

    def test_flask_limiter(self):
        app = Flask("app")
        limiter = Limiter(lambda: "everybody", app=app, storage_uri=URL)
        app.route("/")(limiter.limit("3/hour")(lambda: "fine"))
        while time.time() % 3600 > 3590:
            time.sleep(0.1)
        with app.test_client() as client:
            codes = [client.get("/").status_code for _ in range(5)]
        self.assertEqual(codes, [200] * 3 + [429] * 2)

    def test_publish_and_subscribe(self):
        client = connect()
        for protocol in (2, 3):
            with redis.Redis(port=PORT, socket_timeout=HANG, protocol=protocol).pubsub() as pubsub:
                pubsub.subscribe("news")
                pubsub.psubscribe("new*")
                for _ in range(2):
                    self.assertIn("subscribe", pubsub.get_message(timeout=HANG)["type"])
                self.assertEqual(client.publish("news", "hello"), 2)
                heard = [pubsub.get_message(timeout=HANG) for _ in range(2)]
                self.assertEqual([message["data"] for message in heard], [b"hello"] * 2)
                self.assertEqual(heard[1]["pattern"], b"new*")

    def test_celerys_result_backend(self):
        app = Celery("app", backend=URL)
        result = AsyncResult("task", app=app)
        waited = []
        waits = threading.Thread(target=lambda: waited.append(result.get(timeout=HANG)))
        waits.start()
        app.backend.store_result("task", {"answer": 42}, "SUCCESS")
        waits.join(HANG)
        self.assertEqual(waited, [{"answer": 42}])
        self.assertEqual(app.backend.get_state("task"), "SUCCESS")
        result.forget()
        self.assertEqual(app.backend.get_state("task"), "PENDING")


if __name__ == "__main__":
    unittest.main(verbosity=2)
