//! Strings of the host.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::api::{RawString, api};

/// A string that the host keeps alive for as long as `'a`, such as an argument of a call.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct HostString<'a>(NonNull<RawString>, PhantomData<&'a RawString>);

impl<'a> HostString<'a> {
    /// Wraps `string`; `None` if it is null.
    ///
    /// # Safety
    /// The string must live, and its text stay unchanged, for the whole lifetime. Code that trims
    /// it must make sure that nothing uses the text from before.
    #[inline]
    pub unsafe fn new(string: *mut RawString) -> Option<Self> {
        NonNull::new(string).map(|string| HostString(string, PhantomData))
    }

    /// The arguments of a call.
    ///
    /// # Safety
    /// `argv` must have `argc` strings, each as for [`HostString::new`].
    #[inline]
    pub unsafe fn arguments(argv: *mut *mut RawString, argc: c_int) -> &'a [Self] {
        if argc == 0 {
            return &[];
        }
        // SAFETY: the caller's promise; the type is a pointer that is not null, as the host's are.
        unsafe { std::slice::from_raw_parts(argv.cast(), argc as usize) }
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: it lives and stays as it is.
        unsafe {
            let text = api!(RedisModule_StringPtrLen)(self.raw(), &mut len);
            std::slice::from_raw_parts(text.cast(), len)
        }
    }

    /// The raw pointer, for calls of the module API.
    #[inline]
    pub fn raw(self) -> *mut RawString {
        self.0.as_ptr()
    }

    /// Takes a reference of our own to it.
    pub fn hold(self) -> OwnString {
        // SAFETY: a live string; without a context nobody else drops the reference.
        unsafe { OwnString::of(api!(RedisModule_HoldString)(ptr::null_mut(), self.raw())) }
            .expect("the host holds what lives")
    }
}

/// A string of the host to which we hold a reference. It may be dropped only under the global lock,
/// or if no other reference exists: the host's count is not atomic.
#[repr(transparent)]
pub struct OwnString(NonNull<RawString>);

impl OwnString {
    /// A new string with this text.
    pub fn new(text: &[u8]) -> Self {
        // SAFETY: the host copies the slice; without a context nobody else frees the string.
        unsafe {
            OwnString::of(api!(RedisModule_CreateString)(
                ptr::null_mut(),
                text.as_ptr().cast(),
                text.len(),
            ))
        }
        .expect("the host ends where it has no memory")
    }

    /// Takes over a reference from the host; `None` if it is null.
    ///
    /// # Safety
    /// `string` must be null, or the caller's own reference to a live string.
    pub unsafe fn of(string: *mut RawString) -> Option<Self> {
        NonNull::new(string).map(OwnString)
    }

    /// A borrowed view of it.
    #[inline]
    pub fn get(&self) -> HostString<'_> {
        HostString(self.0, PhantomData)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.get().bytes()
    }

    /// Whether both are the same string object, not only the same text.
    pub fn is(&self, other: &OwnString) -> bool {
        self.0 == other.0
    }

    /// The raw pointer, for the host, which takes over the reference.
    pub fn into_raw(self) -> *mut RawString {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl Drop for OwnString {
    fn drop(&mut self) {
        // SAFETY: our own reference, dropped once.
        unsafe { api!(RedisModule_FreeString)(ptr::null_mut(), self.0.as_ptr()) };
    }
}
