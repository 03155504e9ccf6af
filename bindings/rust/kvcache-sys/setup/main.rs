//! Makes the crate's declarations follow the header (feature `buildtime-bindgen`), and finds the library to link.
#[cfg(feature = "buildtime-bindgen")]
mod generate;
mod link;
mod places;

fn main() {
    println!("cargo:rerun-if-changed=setup");
    #[cfg(feature = "buildtime-bindgen")]
    generate::all();
    // Documentation needs no library, and feature `dynamic` finds it at run time.
    if places::variable("DOCS_RS").is_none() && !cfg!(feature = "dynamic") {
        link::library();
    }
}
