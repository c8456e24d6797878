//! What the host sends to the listener: any bytes are read, and in pieces as at once.

use midi::command::read_pushed;

/// The bytes are what the host has sent.
pub fn check(data: &[u8]) {
    let (mut rest, whole) = (data, read_pushed(data));
    if let Ok(Some((_, length))) = &whole {
        assert!((1..=data.len()).contains(length));
        assert_eq!(read_pushed(&data[..*length]), whole, "what follows does not matter");
        for end in (0..*length).rev().take(64) {
            assert_eq!(read_pushed(&data[..end]), Ok(None), "it is not complete");
        }
    }
    while let Ok(Some((_, length))) = read_pushed(rest) {
        rest = &rest[length..];
    }
}
