//! The listener's login at the host: MIDI.LISTEN with a random token. Any client may send the
//! command, and only the listener knows the token. So no password has to be set up, and none can
//! leak.

use std::fs::File;
use std::io::{self, Read};

use subtle::ConstantTimeEq;

use super::super::acl::log_in_as_kept;
use super::super::api::Ctx;
use super::super::instance::instance;
use super::super::state::listener::ListenerToken;

/// What the listener's user may do: nothing but hear.
const RULES: [&[u8]; 6] =
    [b"on", b"-@all", b"+subscribe", b"+psubscribe", b"+ssubscribe", b"allchannels"];

/// Its rules on the ends of subscriptions.
const ENDS: [&[u8]; 3] = [b"+unsubscribe", b"+punsubscribe", b"+sunsubscribe"];

/// A token that nobody can guess.
pub fn new_token() -> io::Result<ListenerToken> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut token = [0; 32];
    for (digits, byte) in token.chunks_exact_mut(2).zip(bytes) {
        digits.copy_from_slice(format!("{byte:02x}").as_bytes());
    }
    Ok(token)
}

/// MIDI.LISTEN: logs the client in if it has the listener's token. False if it has not.
pub fn log_in(ctx: Ctx<'_>, token: &[u8]) -> bool {
    let listening = &instance().listening;
    let mut wanted = listening.token.lock();
    let is_it = wanted.as_ref().is_some_and(|wanted| bool::from(wanted[..].ct_eq(token)));
    if is_it {
        *wanted = None;
    }
    drop(wanted);
    is_it && log_in_as_kept(ctx, &listening.user, RULES.into_iter().chain(ENDS))
}
