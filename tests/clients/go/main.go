// go-redis, and libraries on top of it, against midi's port, and gomemcache against its memcached port: what a program
// that knows nothing of midi does.
//
// Environment: MIDI_PORT and MIDI_SOCKET, where midi listens; MIDI_MEMCACHED_PORT, its memcached port; MIDI_TLS_PORT and
// MIDI_TLS_CA, its port for TLS and who signs there; MIDI_HOST_PORT, the host's own port.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Longer than anything here takes: a guard against hangs.
const hang = 90 * time.Second

var ctx, _ = context.WithTimeout(context.Background(), hang)

func check(right bool, what string, seen ...any) {
	if !right {
		_, file, line, _ := runtime.Caller(1)
		fmt.Fprintf(os.Stderr, "%s:%d: %s: %v\n", file, line, what, seen)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		_, file, line, _ := runtime.Caller(1)
		fmt.Fprintf(os.Stderr, "%s:%d: %v\n", file, line, err)
		os.Exit(1)
	}
	return value
}

func waitUntil(done func() bool) {
	for !done() {
		check(ctx.Err() == nil, "waited too long")
		time.Sleep(5 * time.Millisecond)
	}
}

// The machine may be too busy for the library's patience of a few seconds.
func patient(options *redis.Options) *redis.Client {
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = hang, hang, hang, hang
	return redis.NewClient(options)
}

func commands(r *redis.Client) {
	must(r.FlushAll(ctx).Result())
	check(must(r.Ping(ctx).Result()) == "PONG", "PING")
	must(r.Set(ctx, "k", "v", 0).Result())
	check(must(r.Get(ctx, "k").Result()) == "v", "GET")
	check(errors.Is(r.Get(ctx, "nosuch").Err(), redis.Nil), "GET of nothing")
	check(!must(r.SetNX(ctx, "k", "w", 0).Result()), "SET NX")
	must(r.MSet(ctx, "a", 1, "b", 2).Result())
	values := must(r.MGet(ctx, "a", "nosuch", "b").Result())
	check(reflect.DeepEqual(values, []any{"1", nil, "2"}), "MGET", values)
	check(must(r.IncrBy(ctx, "a", 41).Result()) == 42, "INCRBY")
	check(must(r.IncrByFloat(ctx, "a", 0.5).Result()) == 42.5, "INCRBYFLOAT")
	check(must(r.Append(ctx, "k", "xyz").Result()) == 4, "APPEND")
	check(must(r.GetRange(ctx, "k", 1, 2).Result()) == "xy", "GETRANGE")
	check(must(r.Exists(ctx, "a", "b", "nosuch").Result()) == 2, "EXISTS")
	check(must(r.Rename(ctx, "k", "l").Result()) == "OK", "RENAME")
	check(must(r.Type(ctx, "l").Result()) == "string", "TYPE")
	check(must(r.Del(ctx, "a", "b").Result()) == 2, "DEL")
	check(reflect.DeepEqual(must(r.Keys(ctx, "*").Result()), []string{"l"}), "KEYS")
	check(must(r.DBSize(ctx).Result()) == 1, "DBSIZE")
	check(strings.Contains(must(r.Info(ctx).Result()), "redis_version"), "INFO")
	check(must(r.ConfigGet(ctx, "databases").Result())["databases"] == "16", "CONFIG GET")
}

func binary(r *redis.Client) {
	var all [256]byte
	for number := range all {
		all[number] = byte(number)
	}
	for _, value := range [][]byte{{}, []byte("\r\n$-1\r\n"), all[:], bytes.Repeat(all[:], 4096)} {
		must(r.Set(ctx, string(all[:]), value, 0).Result())
		check(bytes.Equal(must(r.Get(ctx, string(all[:])).Bytes()), value), "bytes")
	}
}

func expiry(r *redis.Client) {
	must(r.Set(ctx, "long", "v", 1000*time.Second).Result())
	check(must(r.TTL(ctx, "long").Result()) > 900*time.Second, "TTL")
	check(must(r.Persist(ctx, "long").Result()), "PERSIST")
	must(r.Set(ctx, "short", "v", 20*time.Millisecond).Result())
	waitUntil(func() bool { return errors.Is(r.Get(ctx, "short").Err(), redis.Nil) })
}

func pipelines(r *redis.Client) {
	pipeline := r.Pipeline()
	var replies []*redis.StringCmd
	for number := range 5000 {
		pipeline.Set(ctx, fmt.Sprint("key:", number%100), number, 0)
		replies = append(replies, pipeline.Get(ctx, fmt.Sprint("key:", number%100)))
	}
	must(pipeline.Exec(ctx))
	for number, reply := range replies {
		check(must(reply.Int()) == number, "pipeline", reply)
	}
}

func transactions(r *redis.Client) {
	must(r.Del(ctx, "n").Result())
	var last *redis.IntCmd
	must(r.TxPipelined(ctx, func(pipeline redis.Pipeliner) error {
		pipeline.Set(ctx, "n", 1, 0)
		last = pipeline.Incr(ctx, "n")
		return nil
	}))
	check(last.Val() == 2, "MULTI")
	other := patient(r.Options())
	defer other.Close()
	err := r.Watch(ctx, func(tx *redis.Tx) error {
		must(other.Set(ctx, "n", 7, 0).Result())
		_, err := tx.TxPipelined(ctx, func(pipeline redis.Pipeliner) error {
			return pipeline.Set(ctx, "n", 8, 0).Err()
		})
		return err
	}, "n")
	check(errors.Is(err, redis.TxFailedErr), "WATCH", err)
	check(must(r.Get(ctx, "n").Int()) == 7, "what EXEC refused")
	countTogether(r)
}

// Optimistic locking: no step is lost.
func countTogether(r *redis.Client) {
	must(r.Set(ctx, "n", 0, 0).Result())
	var all sync.WaitGroup
	for range 6 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 50 {
				waitUntil(func() bool { return r.Watch(ctx, step, "n") == nil })
			}
		}()
	}
	all.Wait()
	check(must(r.Get(ctx, "n").Int()) == 300, "a lost step")
}

func step(tx *redis.Tx) error {
	n, err := tx.Get(ctx, "n").Int()
	if err != nil {
		return err
	}
	_, err = tx.TxPipelined(ctx, func(pipeline redis.Pipeliner) error {
		return pipeline.Set(ctx, "n", n+1, 0).Err()
	})
	return err
}

func scans(r *redis.Client) {
	must(r.FlushDB(ctx).Result())
	pipeline := r.Pipeline()
	for number := range 3000 {
		pipeline.Set(ctx, fmt.Sprint("key:", number), "v", 0)
	}
	must(pipeline.Exec(ctx))
	seen := map[string]bool{}
	for keys := r.Scan(ctx, 0, "key:*", 500).Iterator(); keys.Next(ctx); {
		seen[keys.Val()] = true
	}
	check(len(seen) == 3000, "SCAN", len(seen))
}

func connections(r *redis.Client) {
	own := r.Conn()
	defer own.Close()
	id := must(own.ClientID(ctx).Result())
	must(own.ClientSetName(ctx, "tester").Result())
	check(must(own.ClientGetName(ctx).Result()) == "tester", "CLIENT GETNAME")
	info := must(own.ClientInfo(ctx).Result())
	check(info.ID == id && info.Name == "tester", "CLIENT INFO", info)
	check(strings.HasPrefix(info.LibName, "go-redis("), "its library", info.LibName)
	check(must(r.ClientKillByFilter(ctx, "ID", fmt.Sprint(id)).Result()) == 1, "CLIENT KILL")
	check(own.Get(ctx, "k").Err() != nil, "a killed connection")
	must(r.Set(ctx, "k", "v", 0).Result())
}

func wrong(r *redis.Client) {
	for line, text := range map[string]string{
		"NOSUCH": "unknown command", "GET": "wrong number of arguments for 'get' command",
		"SET k v WHAT": "syntax error",
	} {
		var args []any
		for _, word := range strings.Split(line, " ") {
			args = append(args, word)
		}
		err := r.Do(ctx, args...).Err()
		check(err != nil && strings.Contains(err.Error(), text), line, err)
	}
	must(r.Ping(ctx).Result())
}

func logins(protocol int) {
	admin := patient(&redis.Options{Addr: "127.0.0.1:" + os.Getenv("MIDI_HOST_PORT")})
	defer admin.Close()
	must(admin.Do(ctx, "ACL", "SETUSER", "alice", "on", ">secret", "-@all", "+midi.get", "+get", "+@connection", "~key*").Result())
	login := func(password string) *redis.Client {
		address := "127.0.0.1:" + os.Getenv("MIDI_PORT")
		return patient(&redis.Options{Addr: address, Username: "alice", Password: password, Protocol: protocol})
	}
	alice := login("secret")
	defer alice.Close()
	err := alice.Get(ctx, "key1").Err()
	check(err == nil || errors.Is(err, redis.Nil), "GET", err)
	for what, err := range map[string]error{"SET": alice.Set(ctx, "key1", 1, 0).Err(), "GET": alice.Get(ctx, "other").Err()} {
		check(err != nil && strings.HasPrefix(err.Error(), "NOPERM"), what, err)
	}
	intruder := login("wrong")
	defer intruder.Close()
	err = intruder.Get(ctx, "key1").Err()
	check(err != nil && strings.HasPrefix(err.Error(), "WRONGPASS"), "AUTH", err)
}

func trusting() *tls.Config {
	roots := x509.NewCertPool()
	check(roots.AppendCertsFromPEM(must(os.ReadFile(os.Getenv("MIDI_TLS_CA")))), "an authority")
	return &tls.Config{RootCAs: roots}
}

func pubsub(r *redis.Client) {
	subscriber := r.Subscribe(ctx, "news")
	defer subscriber.Close()
	must(subscriber.Receive(ctx))
	if err := subscriber.PSubscribe(ctx, "new*"); err != nil {
		check(false, "PSUBSCRIBE", err)
	}
	must(subscriber.Receive(ctx))
	check(must(r.Publish(ctx, "news", "hello").Result()) == 2, "two subscriptions")
	for _, pattern := range []string{"", "new*"} {
		heard := must(subscriber.ReceiveMessage(ctx))
		check(heard.Payload == "hello" && heard.Pattern == pattern, "a message", heard)
	}
}

func main() {
	secure := "127.0.0.1:" + os.Getenv("MIDI_TLS_PORT")
	tcp := "127.0.0.1:" + os.Getenv("MIDI_PORT")
	for _, options := range []*redis.Options{
		{Addr: tcp},
		{Addr: tcp, Protocol: 2},
		{Addr: tcp, DB: 2, ClientName: "me"},
		{Network: "unix", Addr: os.Getenv("MIDI_SOCKET")},
		{Addr: secure, TLSConfig: trusting()},
	} {
		r := patient(options)
		for _, part := range []func(*redis.Client){commands, binary, expiry, pipelines, transactions, scans, pubsub, wrong, connections} {
			part(r)
		}
		r.Close()
	}
	logins(2)
	logins(3)
	libraries()
	memcached()
	fmt.Println("go-redis", redis.Version(), "with redsync and redis_rate, and gomemcache, on", runtime.Version()+": right")
}
