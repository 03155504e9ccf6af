//! The library, loaded at run time through `kvc_get_api`.
//!
//! The first call of any function loads it, unless [`load`] did before. A function that the loaded library lacks, or
//! every function if there is no library, returns `KVC_ERROR_DEVICE_UNAVAILABLE` or `KVC_ERROR_UNSUPPORTED` with a
//! message that says where it was looked for. What is loaded stays loaded.
use crate::*;
use core::mem::{offset_of, size_of};
use std::ffi::{CStr, OsString};
use std::format;
use std::path::Path;
use std::string::{String, ToString};
use std::sync::OnceLock;
use std::vec::Vec;

const NAMES: [&str; 2] = ["libkvcache.so.0", "libkvcache.so"];

/// The library's functions, or why there are none.
static TABLE: OnceLock<Result<kvc_api, String>> = OnceLock::new();

/// Loads the library at `path`, or with `None` the first of: the file or directory `KVCACHE_LIBRARY`; in the directory
/// `KVCACHE_LIB_DIR`; beside the executable; as the system's loader finds it. Has an effect once: later calls return what
/// the first one found.
pub fn load(path: Option<&Path>) -> Result<(), &'static str> {
    match TABLE.get_or_init(|| find(path)) {
        Ok(_) => Ok(()),
        Err(message) => Err(message),
    }
}

/// Takes the functions from a host that has them already (its own `kvc_get_api`), in place of [`load`]. Returns what is used
/// from here on, as `load` does: it has an effect once, before any other call. A copy of `table` is kept.
///
/// # Safety
/// The functions are libkvcache's, or do what its header says, for the rest of the process; what an older library does not
/// have is None.
pub unsafe fn install(table: &kvc_api) -> Result<(), &'static str> {
    match TABLE.get_or_init(|| Ok(*table)) {
        Ok(_) => Ok(()),
        Err(message) => Err(message),
    }
}

pub(crate) fn table() -> Option<&'static kvc_api> {
    TABLE.get_or_init(|| find(None)).as_ref().ok()
}

/// What a function returns that cannot be called.
#[cold]
pub(crate) unsafe fn failure(function: &str, error: *mut kvc_error) -> kvc_status {
    let (status, message) = match TABLE.get() {
        Some(Err(message)) => (KVC_ERROR_DEVICE_UNAVAILABLE, format!("{function}: {message}")),
        _ => (KVC_ERROR_UNSUPPORTED, format!("{function}: the loaded library is older than this function")),
    };
    let status = status as kvc_status;
    if error.is_null() {
        return status;
    }
    // SAFETY: the caller's error, of which only struct_size must have been written. As the library does: one of another
    // size cannot be written.
    unsafe {
        if (*error).struct_size as usize != size_of::<kvc_error>() {
            return KVC_ERROR_STRUCT_SIZE as kvc_status;
        }
        let mut filled = kvc_error { code: status, ..Default::default() };
        let room = filled.message.len() - 1;
        for (to, from) in filled.message[..room].iter_mut().zip(message.bytes()) {
            *to = from as core::ffi::c_char;
        }
        error.write(filled);
    }
    status
}

fn find(path: Option<&Path>) -> Result<kvc_api, String> {
    let mut looked = Vec::new();
    for candidate in candidates(path) {
        // SAFETY: libkvcache's initialisers do nothing but set up its own data.
        match unsafe { libloading::Library::new(&candidate) } {
            Ok(library) => {
                let table = functions(&library);
                core::mem::forget(library); // its functions are handed out for ever
                return table.map_err(|problem| format!("{}: {problem}", candidate.display()));
            }
            Err(problem) => looked.push(reason(&problem)),
        }
    }
    Err(format!("libkvcache was not found (KVCACHE_LIBRARY names its file or directory): {}", looked.join("; ")))
}

/// The loader's own words.
fn reason(problem: &libloading::Error) -> String {
    std::error::Error::source(problem).map_or_else(|| problem.to_string(), ToString::to_string)
}

fn candidates(path: Option<&Path>) -> Vec<std::path::PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    if let Some(file) = path.map(Into::into).or_else(|| variable("KVCACHE_LIBRARY")) {
        let file = Path::new(&file);
        return if file.is_dir() { NAMES.map(|name| file.join(name)).into() } else { [file.into()].into() };
    }
    let mut found = Vec::new();
    if let Some(directory) = variable("KVCACHE_LIB_DIR") {
        found.extend(NAMES.map(|name| Path::new(&directory).join(name)));
    }
    if let Ok(executable) = std::env::current_exe() {
        found.extend(executable.parent().map(|directory| directory.join(NAMES[0])));
    }
    found.extend(NAMES.map(Into::into));
    found
}

/// A copy of the library's table, without what an older library does not have.
fn functions(library: &libloading::Library) -> Result<kvc_api, String> {
    type GetApi = unsafe extern "C" fn(u32) -> *const kvc_api;
    // SAFETY: the header's prototype.
    let get_api = unsafe { library.get::<GetApi>(c"kvc_get_api") }.map_err(|problem| reason(&problem))?;
    let table = unsafe { get_api(KVC_ABI_VERSION) };
    if table.is_null() {
        let (major, minor) = (KVC_VERSION_MAJOR, KVC_VERSION_MINOR);
        let version = unsafe { library.get::<unsafe extern "C" fn() -> *const core::ffi::c_char>(c"kvc_version") }
            .map(|version| unsafe { CStr::from_ptr(version()) }.to_string_lossy().into_owned());
        let version = version.unwrap_or_else(|_| "unknown".into());
        return Err(format!("its version is {version}, and this program was made for {major}.{minor}"));
    }
    // SAFETY: all zero is a table without functions; the library says how much of it there is.
    unsafe {
        let mut copy: kvc_api = core::mem::zeroed();
        let size = ((*table).struct_size as usize).min(size_of::<kvc_api>());
        debug_assert!(size > offset_of!(kvc_api, version));
        core::ptr::copy_nonoverlapping(table.cast::<u8>(), (&raw mut copy).cast(), size);
        Ok(copy)
    }
}
