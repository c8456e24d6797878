//! The keyspace as bytes, in the files and streams of the host. It knows the engine, and neither
//! the host nor sockets: the host gives it the bytes, and takes them.

pub mod aof;
pub mod replay;
pub mod snapshot;
