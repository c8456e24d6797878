// ioredis against midi's port: what a program that knows nothing of midi does.
'use strict';

const assert = require('node:assert/strict');
const Redis = require('ioredis');
const { port, hostPort, socket, tlsPort, ca, everyByte, waitUntil, run } = require('./common.js');

async function commands(redis) {
  await redis.flushall();
  assert.equal(await redis.ping(), 'PONG');
  assert.equal(await redis.set('k', 'v'), 'OK');
  assert.equal(await redis.get('k'), 'v');
  assert.equal(await redis.get('nosuch'), null);
  assert.equal(await redis.set('k', 'w', 'EX', 1000, 'NX'), null);
  assert.equal(await redis.mset({ a: 1, b: 2 }), 'OK');
  assert.deepEqual(await redis.mget('a', 'nosuch', 'b'), ['1', null, '2']);
  assert.equal(await redis.incrby('a', 41), 42);
  assert.equal(await redis.exists('a', 'b', 'nosuch'), 2);
  assert.equal(await redis.setex('long', 1000, 'v'), 'OK');
  assert.ok((await redis.ttl('long')) > 900);
  await redis.psetex('short', 20, 'v');
  await waitUntil(async () => (await redis.get('short')) === null);
  assert.equal(await redis.del('a', 'b', 'long'), 3);
  const large = Buffer.concat(Array(4096).fill(everyByte));
  for (const value of [Buffer.alloc(0), everyByte, large]) {
    await redis.set(everyByte, value);
    assert.ok(value.equals(await redis.getBuffer(everyByte)));
  }
}

async function pipelines(redis) {
  const pipeline = redis.pipeline();
  for (let number = 0; number < 5000; number++) pipeline.set(`key:${number % 100}`, number).get(`key:${number % 100}`);
  const replies = await pipeline.exec();
  for (let number = 0; number < 5000; number++) assert.deepEqual(replies[2 * number + 1], [null, String(number)]);
  await redis.set('text', 'abc');
  const [one, two, three] = await redis.pipeline().set('a', 1).incr('text').get('a').exec();
  assert.deepEqual([one, three], [[null, 'OK'], [null, '1']]);
  assert.match(two[0].message, /not an integer or out of range/);
}

async function transactions(redis) {
  const replies = await redis.multi().set('n', 1).incr('n').get('n').exec();
  assert.deepEqual(replies, [[null, 'OK'], [null, 2], [null, '2']]);
  const other = redis.duplicate();
  await redis.watch('n');
  await other.set('n', 7);
  assert.equal(await redis.multi().set('n', 8).exec(), null);
  await redis.watch('n');
  await other.set('another', 1);
  assert.deepEqual(await redis.multi().get('n').exec(), [[null, '7']]);
  await other.quit();
}

async function scans(redis) {
  await redis.flushdb();
  const pipeline = redis.pipeline();
  for (let number = 0; number < 3000; number++) pipeline.set(`key:${number}`, 'v');
  await pipeline.exec();
  const seen = new Set();
  for await (const keys of redis.scanStream({ match: 'key:*', count: 500 })) keys.forEach((key) => seen.add(key));
  assert.equal(seen.size, 3000);
}

// The library connects again, sends again what had no reply, and chooses the database again.
async function reconnects(redis) {
  const id = await redis.client('ID');
  await redis.set('k', 'before');
  const other = new Redis(port);
  assert.equal(await other.client('KILL', 'ID', id), 1);
  await waitUntil(async () => (await redis.client('ID')) !== id);
  assert.equal(await redis.get('k'), 'before');
  await other.quit();
}

async function errors(redis) {
  await assert.rejects(redis.call('NOSUCH'), /unknown command/);
  await assert.rejects(redis.call('GET'), /wrong number of arguments for 'get' command/);
  assert.equal(await redis.echo('still here'), 'still here');
}

async function pubsub(redis) {
  const subscriber = redis.duplicate();
  subscriber.on('error', () => {});
  const heard = [];
  subscriber.on('message', (channel, message) => heard.push([channel, message]));
  subscriber.on('pmessage', (pattern, channel, message) => heard.push([pattern, channel, message]));
  assert.equal(await subscriber.subscribe('news', 'more'), 2);
  assert.equal(await subscriber.psubscribe('new*'), 3);
  assert.equal(await redis.publish('news', 'hello'), 2);
  await waitUntil(async () => heard.length === 2);
  assert.deepEqual(heard, [['news', 'hello'], ['new*', 'news', 'hello']]);
  assert.equal(await subscriber.ping(), 'PONG');
  assert.equal(await subscriber.unsubscribe('news', 'more'), 1);
  assert.equal(await subscriber.punsubscribe('new*'), 0);
  assert.equal(await subscriber.get('nosuch'), null);
  await subscriber.quit();
}

async function logins() {
  const admin = new Redis(hostPort);
  await admin.call('ACL', 'SETUSER', 'alice', ...'on >secret -@all +midi.get +get +info +@connection ~key*'.split(' '));
  const alice = new Redis(port, { username: 'alice', password: 'secret' });
  await alice.get('key1');
  await assert.rejects(alice.set('key1', 'v'), /NOPERM/);
  await assert.rejects(alice.get('other'), /NOPERM/);
  await alice.quit();
  await admin.quit();
}

run('ioredis', async () => {
  for (const options of [{ port }, { port, db: 2, connectionName: 'me' }, { path: socket }, { port: tlsPort, tls: { ca } }]) {
    const redis = new Redis(options);
    redis.on('error', () => {});
    for (const part of [commands, pipelines, transactions, scans, pubsub, errors, reconnects]) await part(redis);
    await redis.quit();
  }
  await logins();
});
