//! All users in one batch: prompts in chunks, decode beside them, and a user who leaves in the middle of a step.
use guide::*;
use kvcache::{Batch, Cache, CacheConfig, Capacity, Result, Seq, Stream};

const SYSTEM: &str = "You are a terse assistant. Answer in one short word. ";
const USERS: [(&str, &str); 3] =
    [("Ada", "What is a page?"), ("Bob", "What does a fork share, and what does it copy?"), ("Cy", "Why?")];
const ANSWER: usize = 8; // tokens of an answer
const CHUNK: usize = 16; // most tokens that one row appends in a step, so that a long prompt does not hold up the others
const LEAVES: (&str, usize) = ("Ada", 5); // who closes the connection, and in which step

struct User {
    name: &'static str,
    sequence: Seq,
    pending: Vec<i32>, // tokens that are not in the cache yet
    answer: Vec<i32>,
}

fn read_system_prompt(cache: &Cache) -> Result<Seq> {
    let sequence = cache.add()?;
    for chunk in encode(SYSTEM).chunks(CHUNK) {
        cache.step(&Batch::new(&[sequence], &[chunk.len()]), Stream::NONE, |step| run(step, chunk))?;
    }
    Ok(sequence)
}

/// One step of all users. Returns those who stay.
fn step_of(cache: &Cache, number: usize, users: Vec<User>) -> Result<Vec<User>> {
    let counts: Vec<usize> = users.iter().map(|user| user.pending.len().min(CHUNK)).collect();
    let tokens: Vec<i32> =
        users.iter().zip(&counts).flat_map(|(user, count)| &user.pending[..*count]).copied().collect();
    let sequences: Vec<Seq> = users.iter().map(|user| user.sequence).collect();
    let gone = users.iter().position(|user| (user.name, number) == LEAVES);
    let predicted = cache.step(&Batch::new(&sequences, &counts), Stream::NONE, |step| {
        if let Some(gone) = gone {
            cache.remove(&[sequences[gone]])?; // its pages become free when the step ends
        }
        run(step, &tokens)
    })?;
    let rows: Vec<String> = users.iter().zip(&counts).map(|(user, count)| format!("{} {count}", user.name)).collect();
    println!("step {number}: {}", rows.join(", "));

    let (mut end, mut staying) = (0, Vec::new());
    for (i, mut user) in users.into_iter().enumerate() {
        end += counts[i]; // the rows of a batch come one after another
        user.pending.drain(..counts[i]);
        if gone == Some(i) {
            println!("{} left after {}", user.name, decode(&user.answer));
            continue;
        }
        if user.pending.is_empty() {
            user.answer.push(predicted[end - 1]); // the whole prompt is read: the last row has the next token
            user.pending.push(predicted[end - 1]);
        }
        if user.answer.len() < ANSWER {
            staying.push(user);
        } else {
            println!("{}: {}", user.name, decode(&user.answer));
            cache.remove(&[user.sequence])?;
        }
    }
    Ok(staying)
}

fn main() -> Result<()> {
    let config =
        CacheConfig { capacity: Capacity::Tokens(1024), rollback_tokens: Some(8), deterministic: true, ..config() };
    let cache = new_cache(&config)?;

    let system = read_system_prompt(&cache)?;
    let sequences = cache.fork(&[system; USERS.len()], Stream::NONE)?;
    cache.remove(&[system])?;
    let start = |(sequence, (name, question)): (Seq, (&'static str, &str))| User {
        name,
        sequence,
        pending: encode(question),
        answer: Vec::new(),
    };
    let mut users: Vec<User> = sequences.into_iter().zip(USERS).map(start).collect();

    let mut number = 0;
    while !users.is_empty() {
        number += 1;
        users = step_of(&cache, number, users)?;
    }
    println!("{} pages in use", cache.stats(None)?.pages_used);
    Ok(())
}
