// Libraries for locks and rate limits, unchanged, against midi's port.
'use strict';

const assert = require('node:assert/strict');
const Redis = require('ioredis');
const Redlock = require('redlock');
const { createClient } = require('redis');
const { rateLimit } = require('express-rate-limit');
const { RateLimiterRedis, RateLimiterRes } = require('rate-limiter-flexible');
const { RedisStore } = require('rate-limit-redis');
const { port, hostPort, run } = require('./common.js');

// No promise here is about time: what must not expire lives this long.
const LONG = 600000;

async function redlock(redis) {
  const once = new Redlock([redis], { retryCount: 0 });
  const lock = await once.lock('lock', LONG);
  assert.ok((await redis.pttl('lock')) > LONG / 2);
  await assert.rejects(once.lock('lock', LONG), Redlock.LockError);
  await lock.extend(2 * LONG);
  assert.ok((await redis.pttl('lock')) > LONG);
  await lock.unlock();
  assert.equal(await redis.exists('lock'), 0);
  await assert.rejects(lock.unlock(), Redlock.LockError);

  // One in the critical section at a time.
  const patient = new Redlock([redis], { retryCount: -1, retryDelay: 2, retryJitter: 2 });
  const add = async () => {
    const held = await patient.lock('counter:lock', LONG);
    const count = Number(await redis.get('counter'));
    await redis.set('counter', count + 1);
    await held.unlock();
  };
  await Promise.all(Array.from({ length: 20 }, add));
  assert.equal(await redis.get('counter'), '20');
}

async function rateLimiterFlexible(redis) {
  const limiter = new RateLimiterRedis({ storeClient: redis, points: 5, duration: LONG / 1000, keyPrefix: 'flexible' });
  const tries = await Promise.allSettled(Array.from({ length: 8 }, () => limiter.consume('client')));
  const refused = tries.filter((each) => each.status === 'rejected');
  assert.equal(refused.length, 3);
  for (const { reason } of refused) {
    assert.ok(reason instanceof RateLimiterRes, String(reason));
    assert.ok(reason.msBeforeNext > LONG / 2);
  }
  assert.equal((await limiter.get('client')).consumedPoints, 8);
  assert.equal(await limiter.delete('client'), true);
  assert.equal((await limiter.consume('client')).remainingPoints, 4);
  await limiter.reward('client', 1);
  await limiter.block('client', LONG / 1000);
  await assert.rejects(limiter.consume('client'), (reason) => reason instanceof RateLimiterRes);
}

async function rateLimitRedis(client) {
  const store = new RedisStore({ sendCommand: (...args) => client.sendCommand(args), prefix: 'express:' });
  const limit = rateLimit({ windowMs: LONG, limit: 3, store, validate: false, legacyHeaders: false });
  const outcomes = [];
  for (let number = 0; number < 5; number++) {
    const response = { headersSent: false, setHeader() {}, status: (code) => ((outcomes[number] = code), response), send() {} };
    await limit({ ip: '192.0.2.1', headers: {}, method: 'GET', app: { get() {} } }, response, (error) => {
      assert.ifError(error);
      outcomes[number] = 'passed';
    });
  }
  assert.deepEqual(outcomes, ['passed', 'passed', 'passed', 429, 429]);
  await store.resetKey('192.0.2.1');
  assert.equal(await client.exists('express:192.0.2.1'), 0);
}

async function libraries() {
  const [redis, host, client] = [new Redis(port), new Redis(hostPort), createClient({ socket: { port } })];
  await client.connect();
  await redis.flushall();
  await redlock(redis);
  await rateLimiterFlexible(redis);
  await rateLimitRedis(client);
  assert.equal(await host.dbsize(), 0, 'a key went to the host');
  redis.disconnect();
  host.disconnect();
  await client.close();
}

run('redlock', libraries);
