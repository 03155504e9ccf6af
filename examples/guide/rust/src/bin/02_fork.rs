//! A system prompt that is computed once, for three users.
use guide::*;
use kvcache::{Batch, Cache, CacheConfig, Capacity, Result, Seq, Stream};

const SYSTEM: &str = "You are a terse assistant. Answer in one short word. ";
const USERS: [(&str, &str); 3] =
    [("Ada", "What is a page?"), ("Bob", "What does a fork share, and what does it copy?"), ("Cy", "Why?")];
const ANSWER: usize = 8; // tokens of an answer

/// Appends tokens to a sequence, and gives the token that comes next.
fn forward(cache: &Cache, sequence: Seq, tokens: &[i32]) -> Result<i32> {
    let batch = Batch::new(&[sequence], &[tokens.len()]);
    let predicted = cache.step(&batch, Stream::NONE, |step| run(step, tokens))?; // ends the step, or aborts it
    Ok(predicted[tokens.len() - 1])
}

fn show(cache: &Cache, what: &str) -> Result<()> {
    let stats = cache.stats(None)?;
    println!(
        "{what}: {} pages in use, {} of them shared, {} tokens in {} sequences",
        stats.pages_used, stats.pages_shared, stats.tokens_logical, stats.num_sequences
    );
    Ok(())
}

fn main() -> Result<()> {
    let config =
        CacheConfig { capacity: Capacity::Tokens(1024), rollback_tokens: Some(8), deterministic: true, ..config() };
    let cache = new_cache(&config)?;

    let system = cache.add()?;
    forward(&cache, system, &encode(SYSTEM))?;
    show(&cache, "system prompt")?;

    let sequences = cache.fork(&[system; USERS.len()], Stream::NONE)?; // whole pages are shared, and the last one is copied
    cache.remove(&[system])?; // the users keep what they share
    show(&cache, "three forks")?;

    for (sequence, (name, question)) in sequences.iter().zip(USERS) {
        let mut answer = vec![forward(&cache, *sequence, &encode(question))?];
        while answer.len() < ANSWER {
            answer.push(forward(&cache, *sequence, &answer[answer.len() - 1..])?);
        }
        println!("{name}: {}", decode(&answer));
    }
    show(&cache, "three answers")?;

    cache.remove(&sequences)?;
    show(&cache, "the end")
}
