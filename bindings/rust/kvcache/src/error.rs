//! Errors: the library's status, numbers and words.
use crate::names::NAMES;
use crate::sys;
use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;

pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, by the header's bands. Nothing has changed in the cache then, unless a method says otherwise.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A group has too few free pages: preempt, or try later. `row` is the first row of the batch that does not fit;
    /// `required` and `available` count pages of `group` over the whole batch.
    OutOfPages { row: Option<usize>, group: Option<usize>, required: u64, available: u64, message: String },
    /// Another limit: sequences, open steps, batch size, tree nodes, memory.
    Capacity(Failure),
    /// The program is wrong: a value, a shape, a dtype, an id that is gone or of another cache.
    Misuse(Failure),
    /// The cache or the step is not in the state that this needs: busy, out of order, cancelled, evicted, uncommitted, suspended.
    State(Failure),
    /// No such device, or it failed; with feature `dynamic` also: no library.
    Device(Failure),
    /// Data or I/O.
    Data(Failure),
    /// A bug of the library.
    Internal(Failure),
}

/// The fields of `kvc_error`.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    pub status: Status,
    /// Row, layer or array element at fault.
    pub index: Option<usize>,
    /// Layer group at fault.
    pub group: Option<usize>,
    /// Capacity errors: what the call needs, else 0.
    pub required: u64,
    /// Capacity errors: what there is, else 0.
    pub available: u64,
    /// "function: what, with the values". Functions, fields and arguments have their names in this crate.
    pub message: String,
}

impl Error {
    pub fn status(&self) -> Status {
        self.failure().map_or(Status::OUT_OF_PAGES, |failure| failure.status)
    }

    /// "function: what, with the values"
    pub fn message(&self) -> &str {
        match self {
            Error::OutOfPages { message, .. } => message,
            other => other.failure().map_or("", |failure| &failure.message),
        }
    }

    /// Row, layer or array element at fault.
    pub fn index(&self) -> Option<usize> {
        match self {
            Error::OutOfPages { row, .. } => *row,
            other => other.failure().and_then(|failure| failure.index),
        }
    }

    fn failure(&self) -> Option<&Failure> {
        match self {
            Error::OutOfPages { .. } => None,
            Error::Capacity(failure)
            | Error::Misuse(failure)
            | Error::State(failure)
            | Error::Device(failure)
            | Error::Data(failure)
            | Error::Internal(failure) => Some(failure),
        }
    }

    /// The same of another function of this crate, which has called the library's.
    pub(crate) fn of_function(mut self, name: &str) -> Self {
        let message = match &mut self {
            Error::OutOfPages { message, .. } => message,
            Error::Capacity(failure)
            | Error::Misuse(failure)
            | Error::State(failure)
            | Error::Device(failure)
            | Error::Data(failure)
            | Error::Internal(failure) => &mut failure.message,
        };
        let end = message.find(": ").unwrap_or(message.len());
        message.replace_range(..end, name);
        self
    }

    /// What this crate finds out before the library can: arrays that do not fit their lengths.
    pub(crate) fn misuse(status: Status, message: String) -> Self {
        Error::Misuse(Failure { status, index: None, group: None, required: 0, available: 0, message })
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure.status.0 {
            _ if failure.status == Status::OUT_OF_PAGES => Error::OutOfPages {
                row: failure.index,
                group: failure.group,
                required: failure.required,
                available: failure.available,
                message: failure.message,
            },
            1..=99 => Error::Misuse(failure),
            100..=199 => Error::Capacity(failure),
            200..=299 => Error::State(failure),
            300..=399 => Error::Device(failure),
            400..=499 => Error::Data(failure),
            _ => Error::Internal(failure),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.message(), self.status())
    }
}

/// What `unwrap` shows: `Misuse(Step::attend: layer 1: k has shape ... (KVC_ERROR_SHAPE), index 1)`.
impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let band = match self {
            Error::OutOfPages { row, group, required, available, message } => {
                let (status, message) = (Status::OUT_OF_PAGES, message.clone());
                let (index, group, required, available) = (*row, *group, *required, *available);
                let failure = Failure { status, index, group, required, available, message };
                return write!(formatter, "OutOfPages({failure:?})");
            }
            Error::Capacity(_) => "Capacity",
            Error::Misuse(_) => "Misuse",
            Error::State(_) => "State",
            Error::Device(_) => "Device",
            Error::Data(_) => "Data",
            Error::Internal(_) => "Internal",
        };
        match self.failure() {
            Some(failure) => write!(formatter, "{band}({failure:?})"),
            None => formatter.write_str(band),
        }
    }
}

/// The message and the status, then the numbers that the failure has.
impl fmt::Debug for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.message, self.status)?;
        for (name, number) in [("index", self.index), ("group", self.group)] {
            if let Some(number) = number {
                write!(formatter, ", {name} {number}")?;
            }
        }
        if (self.required, self.available) != (0, 0) {
            write!(formatter, ", required {}, available {}", self.required, self.available)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// A `kvc_status`; other values than the constants may come from newer libraries.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub i32);

macro_rules! statuses {
    ($($name:ident = $value:ident),* $(,)?) => {
        impl Status {
            $(pub const $name: Status = Status(sys::$value as i32);)*
        }
    };
}

statuses! {
    INVALID_ARGUMENT = KVC_ERROR_INVALID_ARGUMENT,
    NULL_ARGUMENT = KVC_ERROR_NULL_ARGUMENT,
    STRUCT_SIZE = KVC_ERROR_STRUCT_SIZE,
    UNSUPPORTED = KVC_ERROR_UNSUPPORTED,
    DTYPE = KVC_ERROR_DTYPE,
    DEVICE = KVC_ERROR_DEVICE,
    RANK = KVC_ERROR_RANK,
    SHAPE = KVC_ERROR_SHAPE,
    STRIDE = KVC_ERROR_STRIDE,
    OUT_OF_RANGE = KVC_ERROR_OUT_OF_RANGE,
    STALE_ID = KVC_ERROR_STALE_ID,
    DUPLICATE = KVC_ERROR_DUPLICATE,
    EARLIER_CALL = KVC_ERROR_EARLIER_CALL,
    OUT_OF_PAGES = KVC_ERROR_OUT_OF_PAGES,
    OUT_OF_MEMORY = KVC_ERROR_OUT_OF_MEMORY,
    TOO_MANY_SEQUENCES = KVC_ERROR_TOO_MANY_SEQUENCES,
    TOO_MANY_FORWARDS = KVC_ERROR_TOO_MANY_FORWARDS,
    BATCH_TOO_LARGE = KVC_ERROR_BATCH_TOO_LARGE,
    BUFFER_TOO_SMALL = KVC_ERROR_BUFFER_TOO_SMALL,
    TREE_TOO_LARGE = KVC_ERROR_TREE_TOO_LARGE,
    BUSY = KVC_ERROR_BUSY,
    ORDER = KVC_ERROR_ORDER,
    CANCELLED = KVC_ERROR_CANCELLED,
    EVICTED = KVC_ERROR_EVICTED,
    UNCOMMITTED = KVC_ERROR_UNCOMMITTED,
    STALE = KVC_ERROR_STALE,
    SUSPENDED = KVC_ERROR_SUSPENDED,
    PENDING = KVC_ERROR_PENDING,
    DEVICE_UNAVAILABLE = KVC_ERROR_DEVICE_UNAVAILABLE,
    DEVICE_FAILED = KVC_ERROR_DEVICE_FAILED,
    IO = KVC_ERROR_IO,
    CORRUPT = KVC_ERROR_CORRUPT,
    LAYOUT = KVC_ERROR_LAYOUT,
    INTERNAL = KVC_ERROR_INTERNAL,
}

impl Status {
    /// Whether it is of the capacity band: nothing is wrong, and the call may succeed later, or with less.
    pub const fn is_capacity(self) -> bool {
        matches!(self.0, 100..=199)
    }

    /// The header's name, "KVC_ERROR_OUT_OF_PAGES"; of an unknown status the name of its band.
    pub fn name(self) -> &'static str {
        // SAFETY: takes any value.
        static_text(unsafe { sys::kvc_status_name(self.0) })
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Status({} {})", self.0, self.name())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A static string of the library; without a library (feature `dynamic`) it is empty.
pub(crate) fn static_text(text: *const std::ffi::c_char) -> &'static str {
    if text.is_null() {
        return "";
    }
    // SAFETY: the header: a static string.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("")
}

/// Calls a function of the library with an error to fill.
#[inline]
pub(crate) fn check(function: impl FnOnce(*mut sys::kvc_error) -> sys::kvc_status) -> Result<()> {
    // Not KVC_ERROR_INIT as a whole: 512 bytes of zeros would cost more than a small call.
    let mut error = MaybeUninit::<sys::kvc_error>::uninit();
    let pointer = error.as_mut_ptr();
    // SAFETY: fields of memory that is ours.
    unsafe {
        (&raw mut (*pointer).struct_size).write(size_of::<sys::kvc_error>() as u32);
        (&raw mut (*pointer).index).write(-1);
        (&raw mut (*pointer).required).write(0);
        (&raw mut (*pointer).available).write(0);
        (&raw mut (*pointer).group).write(-1);
        (&raw mut (*pointer).message).cast::<u8>().write(0);
    }
    match function(pointer) {
        0 => Ok(()),
        // SAFETY: every field that is read has been written, above or by the library, which ends its message.
        status => Err(unsafe { failed(status, pointer) }),
    }
}

#[cold]
unsafe fn failed(status: sys::kvc_status, error: *const sys::kvc_error) -> Error {
    // SAFETY: the caller's word.
    let (index, group, required, available, message) = unsafe {
        let message = in_rust(&CStr::from_ptr((&raw const (*error).message).cast()).to_string_lossy());
        ((*error).index, (*error).group, (*error).required, (*error).available, message)
    };
    Failure {
        status: Status(status),
        index: usize::try_from(index).ok(),
        group: usize::try_from(group).ok(),
        required: u64::try_from(required).unwrap_or(0),
        available: u64::try_from(available).unwrap_or(0),
        message,
    }
    .into()
}

/// A message of the library with this crate's names for C's. A name may have a meaning of its own in one function.
fn in_rust(message: &str) -> String {
    let function = message.split(':').next().unwrap_or("");
    let lookup = |name: &str| NAMES.binary_search_by_key(&name, |entry| entry.0).ok().map(|found| NAMES[found].1);
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut result = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(begin) = rest.find(is_word) {
        let (before, from) = rest.split_at(begin);
        let (word, after) = from.split_at(from.find(|letter| !is_word(letter)).unwrap_or(from.len()));
        result.push_str(before);
        result.push_str(lookup(&format!("{function}.{word}")).or_else(|| lookup(word)).unwrap_or(word));
        rest = after;
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_are_replaced() {
        assert!(NAMES.is_sorted_by_key(|entry| entry.0));
        let cases = [
            ("kvc_cache_create: num_q_heads 3", "Cache::new: q_heads 3"),
            ("kvc_forward_attend: k is NULL (my_num_q_heads)", "Step::attend: k is None (my_num_q_heads)"),
            ("kvc_seq_set_streaming: window_tokens[1]", "Cache::set_streaming: window[1]"),
            ("", ""),
            (": ö forwards", ": ö steps"),
        ];
        for (given, wanted) in cases {
            assert_eq!(in_rust(given), wanted);
        }
    }
}
