//! Raw bindings to libkvcache: every type, constant and function of `kvcache.h`, with the
//! header's comments. The crate `kvcache` is the safe layer over it.
//!
//! `Default` of a struct that has a `struct_size` is what its `kvc_*_init` writes in C.
//!
//! The build finds the library: in the directory `KVCACHE_LIB_DIR`, by pkg-config, else it builds it for the CPU (CMake
//! and a C++20 compiler). With the feature `dynamic` nothing is linked: the same functions call the table of a library
//! that is loaded at run time (module `dynamic`).
#![no_std]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(rustdoc::all)] // the header's comments

#[cfg(feature = "dynamic")]
extern crate std;

#[cfg(feature = "dynamic")]
pub mod dynamic;

macro_rules! generated {
    ($module:ident, $file:literal) => {
        #[allow(clippy::all)]
        mod $module {
            #[cfg(feature = "buildtime-bindgen")]
            include!(concat!(env!("OUT_DIR"), "/generated/", $file));
            #[cfg(not(feature = "buildtime-bindgen"))]
            include!(concat!("generated/", $file));
        }
    };
}

generated!(types, "types.rs");
#[cfg(not(feature = "dynamic"))]
generated!(functions, "linked.rs");
#[cfg(feature = "dynamic")]
generated!(functions, "dynamic.rs");

pub use functions::*;
pub use types::*;
