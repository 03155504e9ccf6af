//! Export and import of K and V.
use crate::cache::{Cache, Seq, Stream};
use crate::config::{narrow, wide};
use crate::dlpack::ManagedTensor;
use crate::error::{check, Error, Result, Status};
use crate::sys;
use crate::tensor::{pointer, Tensor};
use std::ops::{Bound, RangeBounds};
use std::ptr::null;

/// Dense copies of the stored K and V of one layer and one sequence. They may outlive the cache.
#[derive(Debug)]
pub struct Exported {
    /// `[tokens, kv heads, head dim]` of the layer's dtype (float8: u8)
    pub k: Option<ManagedTensor>,
    /// `[tokens, kv heads, v head dim]`; `None` for a latent layer, unless V was requested.
    pub v: Option<ManagedTensor>,
    /// f32, the factors of `k`: `[tokens, kv heads]` for i8 and u4, `[kv heads]` for float8.
    pub k_scale: Option<ManagedTensor>,
    pub v_scale: Option<ManagedTensor>,
}

/// What an export copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportParts {
    pub k: bool,
    pub v: bool,
    /// Only of a quantised layer.
    pub k_scale: bool,
    pub v_scale: bool,
}

impl ExportParts {
    fn raw(self) -> u32 {
        let when = |condition, flag| if condition { flag } else { 0 };
        when(self.k, sys::KVC_EXPORT_K)
            | when(self.v, sys::KVC_EXPORT_V)
            | when(self.k_scale, sys::KVC_EXPORT_K_SCALE)
            | when(self.v_scale, sys::KVC_EXPORT_V_SCALE)
    }
}

/// K and V for every layer of a cache, in order; `None` for a layer that reads another's, or a cross layer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Import<'a> {
    /// `[tokens, kv heads, head dim]`
    pub k: &'a [Option<Tensor<'a>>],
    /// Empty if every layer is latent.
    pub v: &'a [Option<Tensor<'a>>],
    /// Scales of stored bytes of i8 and u4; empty: none.
    pub k_scale: &'a [Option<Tensor<'a>>],
    pub v_scale: &'a [Option<Tensor<'a>>],
    /// As exported: already rotated, and stored bytes for quantised layers.
    pub as_stored: bool,
}

impl Cache {
    /// Copies a range of a sequence's tokens of one layer, as stored, with all parts that the layer has.
    pub fn export(
        &self,
        sequence: Seq,
        layer: usize,
        positions: impl RangeBounds<usize>,
        stream: Stream,
    ) -> Result<Exported> {
        self.export_parts(sequence, layer, positions, ExportParts::default(), stream)
    }

    /// The same for some parts. V of a latent layer is exported only so. An empty list means all parts.
    pub fn export_parts(
        &self,
        sequence: Seq,
        layer: usize,
        positions: impl RangeBounds<usize>,
        parts: ExportParts,
        stream: Stream,
    ) -> Result<Exported> {
        let begin = match positions.start_bound() {
            Bound::Unbounded => 0,
            Bound::Included(begin) => *begin,
            Bound::Excluded(begin) => begin.saturating_add(1),
        };
        let end = match positions.end_bound() {
            Bound::Unbounded => self.length(sequence)?,
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
        };
        if end == 0 && begin > 0 {
            let message = format!("Cache::export: positions [{begin}, 0) are no range");
            return Err(Error::misuse(Status::OUT_OF_RANGE, message));
        }
        // To the library an end of 0 is the length. So an empty range begins at 1, unless the sequence has no tokens.
        let none = end == 0;
        let (begin, end) = if none { (1, 1) } else { (begin, end) };
        let mut args = sys::kvc_export_args {
            layer: narrow(layer),
            parts: parts.raw(),
            position_begin: wide(begin),
            position_end: wide(end),
            ..Default::default()
        };
        let mut exported = sys::kvc_exported::default();
        // SAFETY: filled by the library.
        let mut copy = |args: &sys::kvc_export_args| {
            check(|error| unsafe {
                sys::kvc_seq_export(self.raw(), sequence.0, args, &mut exported, stream.raw(), error)
            })
        };
        match copy(&args) {
            Err(error) if none && error.status() == Status::OUT_OF_RANGE => {
                (args.position_begin, args.position_end) = (0, 0);
                copy(&args)?;
            }
            result => result?,
        }
        // SAFETY: copies, returned to us.
        unsafe {
            Ok(Exported {
                k: ManagedTensor::from_raw(exported.k),
                v: ManagedTensor::from_raw(exported.v),
                k_scale: ManagedTensor::from_raw(exported.k_scale),
                v_scale: ManagedTensor::from_raw(exported.v_scale),
            })
        }
    }

    /// Appends tokens of dense K and V to a sequence, in every layer.
    pub fn import(&self, sequence: Seq, import: &Import<'_>, stream: Stream) -> Result<()> {
        let layers = import.k.len();
        for (name, array) in [("v", import.v), ("k_scale", import.k_scale), ("v_scale", import.v_scale)] {
            if !array.is_empty() && array.len() != layers {
                let message = format!("import.k has {layers} layers, import.{name} has {}", array.len());
                return Err(Error::misuse(Status::INVALID_ARGUMENT, message));
            }
        }
        let raw = [import.k, import.v, import.k_scale, import.v_scale]
            .map(|array| array.iter().map(|tensor| tensor.as_ref().map(Tensor::raw)).collect::<Vec<_>>());
        let pointers = raw.each_ref().map(|array| array.iter().map(pointer).collect::<Vec<_>>());
        let [k, v, k_scale, v_scale] =
            pointers.each_ref().map(|array| if array.is_empty() { null() } else { array.as_ptr() });
        let args = sys::kvc_import_args {
            flags: if import.as_stored { sys::KVC_IMPORT_AS_STORED } else { 0 },
            num_layers: narrow(layers),
            k,
            v,
            k_scale,
            v_scale,
            ..Default::default()
        };
        // SAFETY: [num_layers] each, of tensors that borrow their memory.
        check(|error| unsafe { sys::kvc_seq_import(self.raw(), sequence.0, &args, stream.raw(), error) })
    }
}
