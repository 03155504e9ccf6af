//! One sequence: read a prompt, then decode one token after another.
use guide::*;
use kvcache::{
    Attend, Batch, Cache, CacheConfig, Capacity, Context, ContextConfig, Result, Seq, Stream, Tensor, TensorMut,
};

/// Appends tokens to a sequence, and gives the token that comes next.
fn forward(cache: &Cache, sequence: Seq, tokens: &[i32]) -> Result<i32> {
    let n = tokens.len();
    let step = cache.begin(&Batch::new(&[sequence], &[n]), Stream::NONE)?; // reserves the pages. A drop aborts
    let mut hidden = embed(tokens);
    let mut out = vec![0f32; n * WIDTH];
    for layer in 0..LAYERS {
        let [q, k, v] = project(&hidden);
        let q = Tensor::new(&q, &[n, Q_HEADS, HEAD_DIM])?;
        let k = Tensor::new(&k, &[n, KV_HEADS, HEAD_DIM])?;
        let v = Tensor::new(&v, &[n, KV_HEADS, HEAD_DIM])?;
        let result = TensorMut::new(&mut out, &[n, Q_HEADS, HEAD_DIM])?;
        step.attend(layer, &Attend::new(q, k, v, result))?; // stores k and v, then attends to everything stored
        add(&mut hidden, &out);
    }
    step.end()?; // the new tokens stay
    Ok(predict(&hidden)[n - 1])
}

fn show(cache: &Cache, sequence: Seq) -> Result<()> {
    let pages = |group| cache.pages(sequence, group).map(|pages| pages.iter().flatten().count()); // without freed ones
    let (sliding, full) = (pages(SLIDING)?, pages(FULL)?);
    println!("{} tokens in {sliding} pages of the sliding layer and {full} of the full layer", cache.length(sequence)?);
    Ok(())
}

fn main() -> Result<()> {
    // All memory is reserved here. The window keeps 8 tokens more, so that 8 tokens can be taken back.
    let config =
        CacheConfig { capacity: Capacity::Tokens(1024), rollback_tokens: Some(8), deterministic: true, ..config() };
    let cache = Cache::new(&Context::new(ContextConfig::new())?, &config)?; // the CPU, with all its cores

    let prompt = encode("Once upon a time there was a cache that kept what it had read.");
    let sequence = cache.add()?;
    let mut answer = vec![forward(&cache, sequence, &prompt)?];
    show(&cache, sequence)?;

    while answer.len() < 40 {
        answer.push(forward(&cache, sequence, &answer[answer.len() - 1..])?);
    }
    show(&cache, sequence)?;
    println!("answer: {}", decode(&answer));
    cache.remove(&[sequence])?;
    println!("{} pages in use", cache.stats(None)?.pages_used);
    Ok(())
}
