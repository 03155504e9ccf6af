//! Makes the crate's declarations follow the header (feature `buildtime-bindgen`), and finds the library to link.
#[cfg(feature = "buildtime-bindgen")]
mod generate;
mod link;
mod places;
mod tools;

fn main() {
    println!("cargo:rerun-if-changed=setup");
    if places::sources().is_none() {
        tools::fail("this package of kvcache-sys has no C++ sources; scripts/package_rust.sh makes one that has them");
    }
    #[cfg(feature = "buildtime-bindgen")]
    generate::all();
    // Documentation needs no library, and feature `dynamic` finds it at run time.
    if places::variable("DOCS_RS").is_none() && !cfg!(feature = "dynamic") {
        link::library();
    }
}
