//! Macros that declare wire structures and assert their sizes and offsets.
//!
//! The macros declare types and check layouts at compile time. They contain no protocol.

/// Declares structures as they travel between machines.
///
/// Each structure states its size. `field @ 8: U16` asserts that the field begins at byte 8. The
/// structures have an alignment of one byte, so a reference to received bytes needs no copy.
/// A tuple structure is a number or an array with a meaning of its own.
macro_rules! wire {
    ($(
        $(#[$about:meta])*
        $seen:vis struct $name:ident: $size:tt bytes { $($fields:tt)* }
    )*) => {
        native! {$(
            $(#[$about])*
            #[derive(zerocopy::Unaligned)]
            $seen struct $name: $size bytes { $($fields)* }
        )*}
    };
    ($(#[$about:meta])* $seen:vis struct $name:ident($inner_seen:vis $inner:ty);) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, zerocopy::Unaligned)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes)]
        #[derive(zerocopy::Immutable, zerocopy::KnownLayout)]
        #[repr(transparent)]
        $seen struct $name($inner_seen $inner);
    };
}

/// Declares structures that two programs of one machine share, in the layout of C.
///
/// The syntax is that of `wire`. Fields may have the machine's alignment.
macro_rules! native {
    ($(
        $(#[$about:meta])*
        $seen:vis struct $name:ident: $size:tt bytes {$(
            $(#[$field_about:meta])*
            $field_seen:vis $field:ident $(@ $offset:literal)?: $type:ty
        ),* $(,)?}
    )*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes)]
        #[derive(zerocopy::Immutable, zerocopy::KnownLayout)]
        #[repr(C)]
        $seen struct $name {$(
            $(#[$field_about])*
            $field_seen $field: $type,
        )*}
        const _: () = assert!(size_of::<$name>() == $size);
        $($(const _: () = assert!(core::mem::offset_of!($name, $field) == $offset);)?)*
    )*};
}
