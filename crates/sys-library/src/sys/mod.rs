//! The calls into the dynamic linker.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// An open library.
#[derive(Debug)]
pub struct Library {
    handle: NonNull<c_void>,
}

impl Library {
    /// Opens a library by its file name. The dynamic linker looks for it where it looks for all.
    ///
    /// # Errors
    /// What the dynamic linker says.
    ///
    /// # Safety
    /// The library's initialisers, and those of the libraries that it needs, are sound to run now.
    pub unsafe fn open(name: &CStr) -> Result<Self, String> {
        // SAFETY: the name is a C string. The caller vouches for the code that runs.
        // WHY UNSAFE: loading a library runs its code.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).ok_or_else(linker_error)?;
        Ok(Self { handle })
    }

    /// The address of a function.
    ///
    /// # Errors
    /// What the dynamic linker says.
    pub fn symbol(&self, name: &CStr) -> Result<NonNull<c_void>, String> {
        // SAFETY: the handle is open, and the name is a C string.
        // WHY UNSAFE: std does not look for symbols.
        let address = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
        NonNull::new(address).ok_or_else(linker_error)
    }
}

/// What the dynamic linker says about its last failure on this thread.
fn linker_error() -> String {
    // SAFETY: takes nothing. The result is null or a C string that stays until the next call of
    // the linker on this thread.
    // WHY UNSAFE: a raw C string.
    let said = unsafe { libc::dlerror() };
    if said.is_null() {
        return "the dynamic linker gives no reason".to_owned();
    }
    // SAFETY: as above; the text is copied at once.
    // WHY UNSAFE: as above.
    unsafe { CStr::from_ptr(said) }
        .to_string_lossy()
        .into_owned()
}

/// Declares a table of functions, with a constructor `find` that takes their addresses from a
/// [`Library`]. The signatures must be those of the library's header.
#[macro_export]
macro_rules! functions_of_library {
    ($(#[$about:meta])* $table:ident { $(fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)* }) => {
        $(#[$about])*
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $table {
            fn find(library: &$crate::Library) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        const NAME: &::std::ffi::CStr = match ::std::ffi::CStr::from_bytes_with_nul(
                            concat!(stringify!($name), "\0").as_bytes(),
                        ) {
                            Ok(name) => name,
                            Err(_) => panic!("a name has no zero inside"),
                        };
                        let address = library.symbol(NAME)?;
                        // SAFETY: the address is that of a function with this name in a library
                        // that stays open, and the table has the signature of its header.
                        // WHY UNSAFE: dlsym knows no types.
                        unsafe {
                            ::std::mem::transmute::<
                                ::std::ptr::NonNull<::std::ffi::c_void>,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(name: &CStr) -> Result<Library, String> {
        // SAFETY: the C library is loaded already, and the other one is not there.
        // WHY UNSAFE: loading a library runs its code.
        unsafe { Library::open(name) }
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let said = open(c"libfabrix-is-not-there.so.7").expect_err("nobody has this library");
        assert!(said.contains("libfabrix-is-not-there.so.7"), "{said}");
    }

    #[test]
    fn a_function_that_is_not_there_is_named() {
        let library = open(c"libc.so.6").expect("the C library is loaded already");
        let said = library.symbol(c"no_such_call").expect_err("no such call");
        assert!(said.contains("no_such_call"), "{said}");
    }
}
