package main

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// No promise here is about time: what must not expire lives this long.
const long = 10 * time.Minute

// Locks of redsync, unchanged.
func locks(r *redis.Client) {
	locks := redsync.New(goredis.NewPool(r))
	once := []redsync.Option{redsync.WithExpiry(long), redsync.WithTries(1)}
	lock := locks.NewMutex("lock", once...)
	check(lock.LockContext(ctx) == nil, "Lock")
	check(locks.NewMutex("lock", once...).LockContext(ctx) != nil, "a second Lock")
	check(must(lock.ExtendContext(ctx)), "Extend")
	check(must(lock.UnlockContext(ctx)), "Unlock")
	_, err := lock.UnlockContext(ctx)
	check(errors.Is(err, redsync.ErrLockAlreadyExpired), "a second Unlock", err)

	// One in the critical section at a time.
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			delay := redsync.WithRetryDelay(2 * time.Millisecond)
			lock := locks.NewMutex("counter:lock", redsync.WithExpiry(long), redsync.WithTries(1_000_000), delay)
			check(lock.LockContext(ctx) == nil, "Lock of many")
			count, _ := r.Get(ctx, "counter").Int()
			must(r.Set(ctx, "counter", count+1, 0).Result())
			check(must(lock.UnlockContext(ctx)), "Unlock of many")
		})
	}
	all.Wait()
	check(must(r.Get(ctx, "counter").Int()) == 10, "a count under a lock")
}

// Limits of redis_rate, unchanged.
func limits(r *redis.Client) {
	limiter, limit := redis_rate.NewLimiter(r), redis_rate.Limit{Rate: 5, Burst: 5, Period: long}
	for number := range 8 {
		seen := must(limiter.Allow(ctx, "client", limit))
		check((seen.Allowed == 1) == (number < 5), "Allow", number, seen)
	}
	check(limiter.Reset(ctx, "client") == nil, "Reset")
	check(must(limiter.AllowN(ctx, "client", limit, 5)).Allowed == 5, "AllowN")
	check(must(limiter.AllowAtMost(ctx, "client", limit, 5)).Allowed == 0, "AllowAtMost")
}

// Libraries for locks and rate limits on top of go-redis.
func libraries() {
	r := patient(&redis.Options{Addr: "127.0.0.1:" + os.Getenv("MIDI_PORT")})
	defer r.Close()
	host := patient(&redis.Options{Addr: "127.0.0.1:" + os.Getenv("MIDI_HOST_PORT")})
	defer host.Close()
	must(r.FlushAll(ctx).Result())
	locks(r)
	limits(r)
	check(must(host.DBSize(ctx).Result()) == 0, "a key went to the host")
}
