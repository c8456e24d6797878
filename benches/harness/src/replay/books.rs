//! What a cache says about itself: the bytes that its limit counts, and its keys.

use anyhow::{Context as _, Result, bail};

use crate::control::Control;
use crate::load::Protocol;

/// The setting with midi's own limit.
pub const MIDI_LIMIT: &str = "midi.maxmemory";
/// The setting with the host's limit, which is stock Redis's, too.
pub const HOST_LIMIT: &str = "maxmemory";

/// The field of INFO with the bytes that [`MIDI_LIMIT`] counts.
const MIDI_USED: &str = "midi_table_bytes";
/// The field with those that [`HOST_LIMIT`] counts.
const HOST_USED: &str = "used_memory";

/// The connections to ask on.
pub struct Books {
    /// To the server that traffic goes to, which knows its keys.
    traffic: Control,
    /// To its host, if that is another port: it has the settings.
    host: Control,
    protocol: Protocol,
    is_midi_limit: bool,
}

impl Books {
    /// Opens them on a server without keys.
    ///
    /// # Errors
    /// Nobody listens; a reply without figures.
    pub fn open(traffic: &str, host: &str, protocol: Protocol, limit: &str) -> Result<Self> {
        let (traffic, host) = (Control::at(traffic)?, Control::at(host)?);
        let is_midi_limit = limit == MIDI_LIMIT;
        Ok(Books { traffic, host, protocol, is_midi_limit })
    }

    /// The bytes that the limit counts.
    ///
    /// # Errors
    /// The server has exited.
    pub fn used(&mut self) -> Result<u64> {
        if self.protocol == Protocol::Memcached {
            return self.stat("bytes");
        }
        let field = if self.is_midi_limit { MIDI_USED } else { HOST_USED };
        self.field(field)?.with_context(|| format!("no {field}"))
    }

    /// The keys that it holds.
    ///
    /// # Errors
    /// The server has exited.
    pub fn keys(&mut self) -> Result<u64> {
        match self.protocol {
            Protocol::Memcached => self.stat("curr_items"),
            Protocol::Resp => keys(&mut self.traffic),
        }
    }

    /// The host's own keys.
    ///
    /// # Errors
    /// The server has exited.
    pub fn keys_of_host(&mut self) -> Result<u64> {
        keys(&mut self.host)
    }

    /// Sets a setting of the host.
    ///
    /// # Errors
    /// There is no such setting.
    pub fn set(&mut self, setting: &str, value: &str) -> Result<()> {
        self.host.command(&format!("CONFIG SET {setting} {value}")).map(drop)
    }

    /// Removes all keys.
    ///
    /// # Errors
    /// The server has exited.
    pub fn flush(&mut self) -> Result<()> {
        self.traffic.command("FLUSHALL").map(drop)
    }

    fn field(&mut self, name: &str) -> Result<Option<u64>> {
        let info = self.host.command("INFO everything")?;
        field(&info, name).map(|value| value.parse().context("no number")).transpose()
    }

    fn stat(&mut self, name: &str) -> Result<u64> {
        let stats = self.traffic.memcached_stats()?;
        let prefix = format!("STAT {name} ");
        let Some(value) = stats.lines().find_map(|line| line.strip_prefix(&prefix)) else {
            bail!("no {name} in {stats}")
        };
        Ok(value.trim().parse()?)
    }
}

fn keys(control: &mut Control) -> Result<u64> {
    let reply = control.command("DBSIZE")?;
    Ok(reply.trim().trim_start_matches(':').parse()?)
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_by_their_whole_name() {
        let info = "# Memory\r\nused_memory_rss:7\r\nused_memory:5\r\n";
        assert_eq!(field(info, "used_memory"), Some("5"));
        assert_eq!(field(info, "used"), None);
    }
}
