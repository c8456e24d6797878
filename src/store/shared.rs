use std::sync::Arc;

/// Bytes with another owner, which stay at their address until dropped: an argument kept from the
/// host, later a buffer read from a socket.
pub trait SharedBytes: Send + Sync {
    /// The bytes; the same address at every call.
    fn bytes(&self) -> &[u8];

    /// The bytes, to be changed and appended to, if their owner allows that.
    fn bytes_mut(&mut self) -> Option<&mut Vec<u8>> {
        None
    }
}

impl SharedBytes for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> Option<&mut Vec<u8>> {
        Some(self)
    }
}

/// A large value: reference-counted, never copied.
#[derive(Clone)]
pub struct SharedValue(pub(super) Arc<dyn SharedBytes>);

impl SharedValue {
    /// Takes ownership of the buffer.
    pub fn new(bytes: impl SharedBytes + 'static) -> Self {
        SharedValue(Arc::new(bytes))
    }

    /// The value's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// The bytes, to be changed in place, if this is the only reference.
    pub(super) fn bytes_mut(&mut self) -> Option<&mut Vec<u8>> {
        Arc::get_mut(&mut self.0)?.bytes_mut()
    }
}
