//! The safe layer on the real library.
mod decode;
mod errors;
mod events;
mod graphs;
mod groups;
mod hostile;
mod newcomers;
mod prefix;
mod saves;
mod sequences;
mod stateless;
mod storage;
mod support;
mod tables;
mod threads;
mod tiers;
mod transfer;
