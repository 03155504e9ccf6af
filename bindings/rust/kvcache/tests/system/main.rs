//! The safe layer on the real library.
mod decode;
mod errors;
mod groups;
mod sequences;
mod support;
mod threads;
mod transfer;
