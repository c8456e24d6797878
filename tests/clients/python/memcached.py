"""pymemcache and pylibmc against midi's memcached port: what a program that knows nothing of
midi does.

Environment: MIDI_MEMCACHED_PORT, where midi listens.
"""

import os
import unittest

import pylibmc
from pymemcache import serde
from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient

PORT = int(os.environ["MIDI_MEMCACHED_PORT"])
SERVER = ("127.0.0.1", PORT)


class Pymemcache(unittest.TestCase):
    def setUp(self):
        self.clients = [
            Client(SERVER, serde=serde.pickle_serde, default_noreply=False),
            PooledClient(SERVER, serde=serde.pickle_serde, default_noreply=False),
            HashClient([SERVER], serde=serde.pickle_serde, default_noreply=False),
        ]
        self.clients[0].flush_all()

    def tearDown(self):
        for client in self.clients:
            client.close()

    def test_values_of_all_types(self):
        for number, client in enumerate(self.clients):
            for value in [b"bytes", "text", 17, {"a": [1, 2]}, b"x" * 100_000]:
                key = f"k{number}"
                self.assertTrue(client.set(key, value, expire=100))
                self.assertEqual(client.get(key), value)
            self.assertIsNone(client.get("nosuch"))

    def test_many_keys(self):
        values = {f"k{number}": number for number in range(1000)}
        for client in self.clients:
            self.assertEqual(client.set_many(values), [])
            self.assertEqual(client.get_many([*values, "nosuch"]), values)
            self.assertTrue(client.delete_many(list(values)))
            self.assertEqual(client.get_many(list(values)), {})

    def test_conditions(self):
        client = self.clients[0]
        self.assertTrue(client.add("a", b"1"))
        self.assertFalse(client.add("a", b"2"))
        self.assertTrue(client.replace("a", b"10"))
        self.assertFalse(client.replace("b", b"1"))
        self.assertEqual(client.incr("a", 5), 15)
        self.assertEqual(client.decr("a", 100), 0)
        self.assertIsNone(client.incr("b", 1))
        self.assertTrue(client.append("a", b"x"))
        self.assertTrue(client.touch("a", 100))
        self.assertTrue(client.delete("a"))
        self.assertFalse(client.delete("a"))

    def test_cas(self):
        client = self.clients[0]
        client.set("a", "old")
        value, number = client.gets("a")
        self.assertEqual(value, "old")
        self.assertTrue(client.cas("a", "new", number))
        self.assertFalse(client.cas("a", "newer", number))
        self.assertIsNone(client.cas("b", "new", number))
        self.assertEqual(client.get("a"), "new")

    def test_without_replies(self):
        client = Client(SERVER, default_noreply=True)
        self.clients.append(client)
        for number in range(100):
            client.set(f"k{number}", str(number))
        client.delete("k5")
        self.assertIsNone(client.get("k5"))
        self.assertEqual(client.get("k99"), b"99")

    def test_reports(self):
        client = self.clients[0]
        self.assertTrue(client.version().startswith(b"1.6."))
        self.assertEqual(client.stats()[b"pointer_size"], 64)


class Pylibmc(unittest.TestCase):
    def setUp(self):
        behaviors = {"tcp_nodelay": True, "cas": True}
        self.client = pylibmc.Client([f"127.0.0.1:{PORT}"], behaviors=behaviors)
        self.client.flush_all()

    def test_values_of_all_types(self):
        for value in ["text", b"bytes", 17, True, 2**70, {"a": [1, 2]}, None, "x" * 100_000]:
            self.assertTrue(self.client.set("k", value, time=100))
            self.assertEqual(self.client.get("k"), value)

    def test_many_keys(self):
        values = {f"k{number}": number for number in range(1000)}
        self.assertEqual(self.client.set_multi(values), [])
        self.assertEqual(self.client.get_multi([*values, "nosuch"]), values)
        self.assertTrue(self.client.delete_multi(list(values)))

    def test_conditions_and_cas(self):
        self.assertTrue(self.client.add("a", 1))
        self.assertFalse(self.client.add("a", 2))
        self.assertEqual(self.client.incr("a", 5), 6)
        self.assertEqual(self.client.decr("a", 2), 4)
        self.assertEqual(self.client.get("a"), 4)
        self.assertTrue(self.client.set("s", "x"))
        self.assertTrue(self.client.append("s", "y"))
        self.assertTrue(self.client.prepend("s", "w"))
        self.assertEqual(self.client.get("s"), "wxy")
        value, number = self.client.gets("a")
        self.assertEqual(value, 4)
        self.assertTrue(self.client.cas("a", 5, number))
        self.assertFalse(self.client.cas("a", 6, number))
        self.assertTrue(self.client.touch("a", 100))


if __name__ == "__main__":
    unittest.main()
