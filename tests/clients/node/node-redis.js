// node-redis against midi's port: what a program that knows nothing of midi does.
'use strict';

const assert = require('node:assert/strict');
const { createClient, RESP_TYPES, WatchError } = require('redis');
const { HANG, port, hostPort, socket, tlsPort, ca, everyByte, waitUntil, run } = require('./common.js');

async function connect(options = {}) {
  // The machine may be too busy for the library's patience of a few seconds.
  const commandOptions = { timeout: HANG };
  const client = createClient({ url: `redis://127.0.0.1:${port}`, commandOptions, ...options });
  client.on('error', () => {});
  await client.connect();
  return client;
}

async function commands(client) {
  await client.flushAll();
  assert.equal(await client.ping(), 'PONG');
  assert.equal(await client.set('k', 'v'), 'OK');
  assert.equal(await client.get('k'), 'v');
  assert.equal(await client.get('nosuch'), null);
  assert.equal(await client.set('k', 'w', { NX: true }), null);
  assert.equal(await client.set('k', 'w', { GET: true }), 'v');
  assert.equal(await client.mSet({ a: '1', b: '2' }), 'OK');
  assert.deepEqual(await client.mGet(['a', 'nosuch', 'b']), ['1', null, '2']);
  assert.equal(await client.incrBy('a', 41), 42);
  assert.equal(Number(await client.incrByFloat('a', 0.5)), 42.5);
  assert.equal(await client.append('k', 'xyz'), 4);
  assert.equal(await client.exists(['a', 'b', 'nosuch']), 2);
  assert.equal(await client.rename('k', 'l'), 'OK');
  assert.equal(await client.type('l'), 'string');
  assert.equal(await client.del(['a', 'b']), 2);
  assert.deepEqual(await client.keys('*'), ['l']);
  assert.equal(await client.dbSize(), 1);
}

async function binary(client) {
  const bytes = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  const large = Buffer.concat(Array(4096).fill(everyByte));
  for (const value of [Buffer.alloc(0), Buffer.from('\r\n$-1\r\n'), everyByte, large]) {
    await bytes.set(everyByte, value);
    assert.ok(value.equals(await bytes.get(everyByte)));
  }
}

async function expiry(client) {
  await client.set('long', 'v', { expiration: { type: 'EX', value: 1000 } });
  assert.ok((await client.ttl('long')) > 900);
  assert.equal(Number(await client.persist('long')), 1);
  await client.pSetEx('short', 20, 'v');
  await waitUntil(async () => (await client.get('short')) === null);
}

// What is called without waiting goes out as one pipeline.
async function pipelines(client) {
  const replies = [];
  for (let number = 0; number < 5000; number++) {
    replies.push(client.set(`key:${number % 100}`, String(number)), client.get(`key:${number % 100}`));
  }
  const all = await Promise.all(replies);
  for (let number = 0; number < 5000; number++) assert.equal(all[2 * number + 1], String(number));
}

async function transactions(client) {
  await client.set('n', '1');
  const [one, two] = await client.multi().incr('n').mGet(['n', 'nosuch']).exec();
  assert.deepEqual([one, two], [2, ['2', null]]);
  await client.watch('n');
  const other = await client.duplicate().connect();
  await other.set('n', '7');
  await assert.rejects(client.multi().set('n', '8').exec(), WatchError);
  await client.watch('n');
  await other.set('another', '1');
  assert.deepEqual(await client.multi().get('n').exec(), ['7']);
  await other.close();
}

async function scans(client) {
  await client.flushDb();
  await Promise.all(Array.from({ length: 3000 }, (_, number) => client.set(`key:${number}`, 'v')));
  const seen = new Set();
  for await (const keys of client.scanIterator({ MATCH: 'key:*', COUNT: 500 })) keys.forEach((key) => seen.add(key));
  assert.equal(seen.size, 3000);
}

async function connections(client) {
  const id = await client.clientId();
  await client.clientSetName('tester');
  assert.equal(await client.clientGetName(), 'tester');
  const info = await client.clientInfo();
  assert.deepEqual([info.id, info.name, info.libName], [id, 'tester', 'node-redis']);
  // The library connects again, and goes on.
  const other = await connect();
  await other.sendCommand(['CLIENT', 'KILL', 'ID', String(id)]);
  await waitUntil(async () => {
    try {
      return (await client.clientId()) !== id;
    } catch {
      return false;
    }
  });
  await client.set('k', 'after');
  assert.equal(await client.get('k'), 'after');
  await other.close();
}

async function pubsub(client) {
  const subscriber = client.duplicate();
  subscriber.on('error', () => {});
  await subscriber.connect();
  const heard = [];
  await subscriber.subscribe('news', (message, channel) => heard.push([message, channel]));
  await subscriber.pSubscribe('new*', (message, channel) => heard.push([message, channel]));
  assert.equal(await client.publish('news', 'hello'), 2);
  await waitUntil(async () => heard.length === 2);
  assert.deepEqual(heard, [['hello', 'news'], ['hello', 'news']]);
  const replies = await client.multi().set('k', 'v').publish('news', 'sent').exec();
  assert.deepEqual(replies.map(String), ['OK', '2']);
  await waitUntil(async () => heard.length === 4);
  await subscriber.unsubscribe('news');
  await subscriber.pUnsubscribe('new*');
  await subscriber.close();
}

async function errors(client) {
  await client.set('text', 'abc');
  await assert.rejects(client.incr('text'), /not an integer or out of range/);
  await assert.rejects(client.sendCommand(['NOSUCH']), /unknown command/);
  await assert.rejects(client.sendCommand(['GET']), /wrong number of arguments for 'get' command/);
  assert.equal(await client.ping(), 'PONG');
}

async function logins(RESP) {
  const admin = createClient({ url: `redis://127.0.0.1:${hostPort}` });
  await admin.connect();
  const rules = 'on >secret -@all +midi.get +get +@connection ~key*'.split(' ');
  await admin.sendCommand(['ACL', 'SETUSER', 'alice', ...rules]);
  const alice = await connect({ username: 'alice', password: 'secret', RESP });
  await alice.get('key1');
  await assert.rejects(alice.set('key1', 'v'), /NOPERM/);
  await assert.rejects(alice.get('other'), /NOPERM/);
  await alice.close();
  const wrong = { username: 'alice', password: 'wrong', RESP, socket: { reconnectStrategy: false } };
  await assert.rejects(connect(wrong), /WRONGPASS/);
  await admin.close();
}

run('redis', async () => {
  const ways = [{}, { RESP: 2 }, { RESP: 3, name: 'me', database: 2 }, { url: undefined, socket: { path: socket } }];
  for (const options of [...ways, { url: `rediss://127.0.0.1:${tlsPort}`, socket: { ca } }]) {
    const client = await connect(options);
    for (const part of [commands, binary, expiry, pipelines, transactions, scans, pubsub, errors, connections]) {
      await part(client);
    }
    await client.close();
  }
  await logins(2);
  await logins(3);
});
