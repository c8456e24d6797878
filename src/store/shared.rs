use std::sync::Arc;

/// Bytes that somebody else owns and that stay where they are until dropped:
/// an argument kept from the host, later a buffer read from a socket.
pub trait SharedBytes: Send + Sync {
    /// The bytes; the same ones at every call.
    fn bytes(&self) -> &[u8];
}

impl SharedBytes for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// A large value: counted, never copied.
#[derive(Clone)]
pub struct SharedValue(pub(super) Arc<dyn SharedBytes>);

impl SharedValue {
    /// Takes the buffer over.
    pub fn new(bytes: impl SharedBytes + 'static) -> Self {
        SharedValue(Arc::new(bytes))
    }

    /// The value's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}
