//! memcached's ASCII authentication: the first command is a `set` whose data are a name and a
//! password.

use super::alone::say_line;
use super::caller::MemcachedCaller;
use super::parse::{MemcachedRequest, ParsedRequest, parse};
use super::run::not_whole;
use crate::limits::{MEMCACHED_LINE_BYTES, MEMCACHED_LOGIN_BYTES};
use crate::net::login::{Login, ask_for_login};

/// Takes a request of a client that has not logged in. Returns where it ends.
pub(super) fn run(caller: &mut MemcachedCaller<'_>, input: &[u8]) -> usize {
    let seen = std::mem::take(&mut caller.session.seen);
    let (request, end) = match parse(input, MEMCACHED_LOGIN_BYTES, seen) {
        ParsedRequest::Request(request, end, _) => (request, end),
        // The line of a `get`, which may be longer behind a login.
        ParsedRequest::NoLine if input.len() > MEMCACHED_LINE_BYTES => {
            return not_whole(caller, input, &ParsedRequest::TooLong);
        }
        parsed => return not_whole(caller, input, &parsed),
    };
    match request {
        MemcachedRequest::Store(store) if store.mode == b"set" => log_in(caller, store.value),
        MemcachedRequest::Answer("CLIENT_ERROR bad data chunk") => {
            say_line(caller, b"CLIENT_ERROR bad command line termination");
        }
        MemcachedRequest::Get(keys) => {
            say_line(caller, UNAUTHENTICATED);
            return end + keys.left + keys.line_end;
        }
        MemcachedRequest::TooLarge(_, skipped) => {
            caller.session.skipped = skipped;
            say_line(caller, b"CLIENT_ERROR auth token too long");
        }
        MemcachedRequest::Refused(_, skipped) => {
            caller.session.skipped = skipped;
            say_line(caller, UNAUTHENTICATED);
        }
        _ => say_line(caller, UNAUTHENTICATED),
    }
    end
}

const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated";

fn log_in(caller: &mut MemcachedCaller<'_>, token: &[u8]) {
    let mut words = token.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let (Some(name), Some(password)) = (words.next(), words.next()) else {
        return say_line(caller, b"CLIENT_ERROR bad authentication token format");
    };
    ask_for_login(caller, name, password, |login, _, output| {
        output.own.extend_from_slice(match login {
            Login::Done => b"STORED\r\n",
            Login::Wrong => b"CLIENT_ERROR authentication failure\r\n",
            Login::Busy => b"SERVER_ERROR BUSY the server is busy running a script\r\n",
        });
    });
}
