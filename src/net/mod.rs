//! midi's own ports: what clients send past the host, and what they get back.
//!
//! The host's main thread takes no part in it, and this layer knows nothing of the module API.

pub mod resp;
