/**
 * libkvcache for Java: a paged KV cache and the attention that reads it, for LLM engines.
 *
 * <p>A {@link dev.kvcache.Cache} has page pools for every layer of a model. Each step of the model is a
 * {@link dev.kvcache.Step}: begin reserves pages for the new tokens of a batch, or changes nothing; attend stores a layer's K and
 * V and computes attention over everything stored; end keeps the new tokens. Tensors are direct buffers with a dtype and a
 * shape ({@link dev.kvcache.Tensor}); errors are {@link dev.kvcache.KvcacheException}, with a status and the row at fault.
 */
package dev.kvcache;
