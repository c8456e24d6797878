//! The way to midi's own host: where it listens, and the login there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use super::login::new_token;
use super::talk::ListenerConnection;
use crate::engine::{Engine, Locked};
use crate::host::api::Ctx;
use crate::host::instance::instance;
use crate::limits::LISTENER_LOGIN;

/// Where the host listens.
enum WayToHost {
    Unix(String),
    Tcp(SocketAddr),
}

/// A connection to the host that has logged in.
///
/// # Errors
/// Why there is none.
pub fn connect(engine: &Engine) -> Result<ListenerConnection, String> {
    let mut failure =
        "the server listens nowhere without TLS: set its unixsocket, or its port".to_owned();
    for way in ask_for_ways(engine)? {
        match open(&way).and_then(log_in) {
            Ok(connection) => return Ok(connection),
            Err(why) => failure = why,
        }
    }
    Err(failure)
}

/// Asks the main thread where the host listens.
fn ask_for_ways(engine: &Engine) -> Result<Vec<WayToHost>, String> {
    let (tell, told) = mpsc::channel();
    engine.context().send_main_task(Box::new(move |locked: Locked<'_>, _, host| {
        let _ = tell.send(host.map(|_| ways(instance().ctx(locked))));
    }));
    match told.recv_timeout(LISTENER_LOGIN) {
        Ok(Some(ways)) => Ok(ways),
        _ => Err("the server is busy".to_owned()),
    }
}

/// The Unix socket first: no address of it can be taken by another program.
fn ways(ctx: Ctx<'_>) -> Vec<WayToHost> {
    let text = |name| {
        let text = ctx.config_text(name).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    };
    let path = text(c"unixsocket");
    let unix = (!path.is_empty()).then_some(WayToHost::Unix(path));
    let port = ctx.config_number(c"port").or_else(|| {
        // CONFIG is renamed. If this is the port of TLS, the login fails.
        ctx.info_number(c"server", c"tcp_port").map(|port| port as i64)
    });
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|&port| port > 0);
    let bind = text(c"bind");
    let tcp = port.into_iter().flat_map(|port| {
        let to = move |ip| WayToHost::Tcp(SocketAddr::new(ip, port));
        addresses(&bind).into_iter().map(to)
    });
    unix.into_iter().chain(tcp).collect()
}

/// The addresses by which a program on this machine reaches a server with this `bind`, those of
/// this machine alone first. Names of hosts are left out.
fn addresses(bind: &str) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = Vec::new();
    for word in bind.split_ascii_whitespace() {
        let address = match word.strip_prefix('-').unwrap_or(word) {
            "*" => Ipv4Addr::LOCALHOST.into(),
            "::*" => Ipv6Addr::LOCALHOST.into(),
            word => match word.parse::<IpAddr>() {
                Ok(IpAddr::V4(ip)) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                Ok(IpAddr::V6(ip)) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
                Ok(ip) => ip,
                Err(_) => continue,
            },
        };
        if !all.contains(&address) {
            all.push(address);
        }
    }
    if all.is_empty() {
        all = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    }
    all.sort_by_key(|ip| !ip.is_loopback());
    all
}

fn open(way: &WayToHost) -> Result<OwnedFd, String> {
    let opened = match way {
        WayToHost::Unix(path) => UnixStream::connect(path).map(OwnedFd::from),
        WayToHost::Tcp(address) => {
            TcpStream::connect_timeout(address, LISTENER_LOGIN).and_then(|stream| {
                stream.set_nodelay(true)?;
                Ok(OwnedFd::from(stream))
            })
        }
    };
    opened.map_err(|error| match way {
        WayToHost::Unix(path) => format!("the server's unixsocket {path}: {error}"),
        WayToHost::Tcp(address) => format!("the server's port {address}: {error}"),
    })
}

/// Logs in. Every try has its own token.
fn log_in(socket: OwnedFd) -> Result<ListenerConnection, String> {
    let token = new_token().map_err(|error| format!("no random numbers: {error}"))?;
    *instance().listening.token.lock() = Some(token);
    let logged_in = ListenerConnection::log_in(socket, &token);
    *instance().listening.token.lock() = None;
    logged_in
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reached_from_its_own_machine() {
        for (bind, expected) in [
            ("* -::*", "127.0.0.1 ::1"),
            ("127.0.0.1 -::1", "127.0.0.1 ::1"),
            ("0.0.0.0", "127.0.0.1"),
            ("::", "::1"),
            ("10.0.0.7 127.0.0.1", "127.0.0.1 10.0.0.7"),
            ("10.0.0.7", "10.0.0.7"),
            ("", "127.0.0.1 ::1"),
            ("a.host.example", "127.0.0.1 ::1"),
        ] {
            let all: Vec<String> = addresses(bind).iter().map(IpAddr::to_string).collect();
            assert_eq!(all.join(" "), expected, "{bind}");
        }
    }
}
