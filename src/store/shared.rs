use std::sync::Arc;

/// Bytes that somebody else owns and that stay where they are until dropped:
/// an argument kept from the host, later a buffer read from a socket.
pub trait SharedBytes: Send + Sync {
    /// The bytes; the same ones at every call.
    fn bytes(&self) -> &[u8];

    /// The bytes to be changed and added to, where their owner allows that.
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

    /// The bytes to be changed in place, where nobody else shares them.
    pub(super) fn bytes_mut(&mut self) -> Option<&mut Vec<u8>> {
        Arc::get_mut(&mut self.0)?.bytes_mut()
    }
}
