//! Page keys: names of tokens that are equal in every process.
use crate::error::{check, Result};
use crate::sys;
use std::ptr;

/// The name of the content of one page.
pub type PageKey = [u8; 32];

/// Tokens that stand for an image or the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaSpan {
    /// Position of its first token in the sequence.
    pub begin: usize,
    /// Of the whole span, more than 0.
    pub tokens: usize,
    /// Of the content, and of what changes how the model sees it.
    pub hash: [u8; 32],
}

/// The arrays from which C reads media spans.
pub(crate) struct MediaArrays {
    pub begins: Vec<i64>,
    pub tokens: Vec<i64>,
    pub hashes: Vec<[u8; 32]>,
}

impl MediaArrays {
    pub fn new(media: &[MediaSpan]) -> Self {
        let number = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        Self {
            begins: media.iter().map(|span| number(span.begin)).collect(),
            tokens: media.iter().map(|span| number(span.tokens)).collect(),
            hashes: media.iter().map(|span| span.hash).collect(),
        }
    }
}

/// What [`page_keys`] hashes.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageKeys<'a> {
    pub tokens: &'a [i32],
    pub page_size: usize,
    /// Names the model: weights, quantisation, tokenizer. Not needed with a parent.
    pub fingerprint: Option<&'a [u8; 32]>,
    /// Name of a LoRA adapter or the like; empty: none.
    pub adapter: &'a [u8],
    /// Separates tenants; empty: none.
    pub salt: &'a [u8],
    /// The salt holds from the page that contains this position on.
    pub salt_begin: usize,
    /// The key of the page that ends at `begin`, to continue from it.
    pub parent: Option<&'a PageKey>,
    /// Position of `tokens[0]`, a multiple of the page size.
    pub begin: usize,
    /// By position, without overlap.
    pub media: &'a [MediaSpan],
}

/// Computes the keys of all whole pages of a token array. `docs/reference/keys.md` says what they cover.
///
/// ```
/// # use kvcache::*;
/// # fn main() -> Result<()> {
/// let tokens: Vec<i32> = (0..40).collect();
/// let call = PageKeys { tokens: &tokens, page_size: 16, fingerprint: Some(&[7; 32]), ..Default::default() };
/// let keys = page_keys(&call)?;
/// assert_eq!(keys.len(), 2); // the last 8 tokens are no page
///
/// let rest = PageKeys { tokens: &tokens[16..], parent: Some(&keys[0]), begin: 16, fingerprint: None, ..call };
/// assert_eq!(page_keys(&rest)?, keys[1..]);
/// # Ok(())
/// # }
/// ```
pub fn page_keys(call: &PageKeys<'_>) -> Result<Vec<PageKey>> {
    let number = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
    let media = MediaArrays::new(call.media);
    let mut keys = vec![[0; 32]; call.tokens.len().checked_div(call.page_size).unwrap_or(0)];
    let args = sys::kvc_page_keys_args {
        tokens: call.tokens.as_ptr(),
        num_tokens: number(call.tokens.len()),
        page_size: number(call.page_size),
        begin: number(call.begin),
        parent: call.parent.map_or(ptr::null(), |key| key.as_ptr()),
        fingerprint: call.fingerprint.map_or(ptr::null(), |bytes| bytes.as_ptr()),
        adapter: call.adapter.as_ptr(),
        adapter_bytes: number(call.adapter.len()),
        salt: call.salt.as_ptr(),
        salt_bytes: number(call.salt.len()),
        salt_begin: number(call.salt_begin),
        num_media: number(call.media.len()),
        media_begins: media.begins.as_ptr(),
        media_tokens: media.tokens.as_ptr(),
        media_hashes: media.hashes.as_ptr().cast(),
        ..Default::default()
    };
    // SAFETY: the arrays have the lengths that are said, and live until the call returns. There is a key for each page.
    check(|error| unsafe { sys::kvc_page_keys(&args, keys.as_mut_ptr().cast(), error) })?;
    Ok(keys)
}
