//! A small scheduler: admission, preemption when pages run out, rejected drafts, and prompts that reuse a conversation.
use guide::*;
use kvcache::{Batch, Cache, CacheConfig, Capacity, Error, PrefixOptions, PrefixQuery, Result, Seq, Step, Stream};
use std::collections::VecDeque;

const SYSTEM: &str = "You are a terse assistant. Answer in one short word. ";
const USERS: [(&str, &str); 3] =
    [("Ada", "What is a page?"), ("Bob", "What does a fork share, and what does it copy?"), ("Cy", "Why?")];
const ANSWER: usize = 24; // tokens of an answer
const PAGES: usize = 11; // of the full layer: too few for three users

struct Request {
    name: &'static str,
    tokens: Vec<i32>, // the prompt, then also the answer
    prompt: usize,
    drafts: Vec<i32>, // a guess at what follows the first token of the answer
    sequence: Option<Seq>,
    cached: usize, // how many of the tokens are in the cache
}

impl Request {
    fn new(name: &'static str, before: &[i32], text: &str, drafts: &str) -> Self {
        let tokens = [before, &encode(text)].concat();
        Self { name, prompt: tokens.len(), tokens, drafts: encode(drafts), sequence: None, cached: 0 }
    }

    fn answer(&self) -> &[i32] {
        &self.tokens[self.prompt..]
    }

    /// What its row appends in the next step: all that is not in the cache, and the drafts when the prompt is read.
    fn next(&self) -> Vec<i32> {
        let drafts: &[i32] = if self.answer().is_empty() { &[] } else { &self.drafts };
        [&self.tokens[self.cached..], drafts].concat()
    }
}

fn batch<'a>(requests: impl IntoIterator<Item = &'a Request>) -> Batch {
    let mut batch = Batch::default();
    for request in requests {
        batch.push(request.sequence.expect("who runs has a sequence"), request.next().len());
    }
    batch
}

struct Engine {
    cache: Cache,
    waiting: VecDeque<Request>,
    running: Vec<Request>,
    number: usize, // of the step
}

impl Engine {
    /// Answers all requests that wait, and returns them.
    fn serve(&mut self) -> Result<Vec<Request>> {
        let mut done = Vec::new();
        while !self.waiting.is_empty() || !self.running.is_empty() {
            self.number += 1;
            self.admit()?;
            let step = self.begin()?;
            let rows: Vec<Vec<i32>> = self.running.iter().map(Request::next).collect();
            let predicted = run(&step, &rows.concat())?;
            step.end()?;
            let mut row = 0;
            for (mut request, tokens) in std::mem::take(&mut self.running).into_iter().zip(rows) {
                self.take(&mut request, &tokens, &predicted[row..row + tokens.len()])?;
                row += tokens.len();
                if request.answer().len() < ANSWER {
                    self.running.push(request);
                } else {
                    println!("step {}: {} has {}", self.number, request.name, decode(&request.answer()[..ANSWER]));
                    self.release(&mut request)?;
                    done.push(request);
                }
            }
        }
        Ok(done)
    }

    /// Starts requests, the one that waits longest first, as long as the next step has room for them.
    fn admit(&mut self) -> Result<()> {
        while let Some(mut request) = self.waiting.pop_front() {
            match self.try_to_start(&mut request) {
                Ok(()) => {
                    let (cached, tokens) = (request.cached, request.tokens.len());
                    println!("step {}: {} starts, {cached} of {tokens} tokens are cached", self.number, request.name);
                    self.running.push(request);
                }
                Err(Error::OutOfPages { .. } | Error::Capacity(_)) if !self.running.is_empty() => {
                    self.release(&mut request)?;
                    self.waiting.push_front(request);
                    break;
                }
                Err(error) => return Err(error), // also: it does not even fit alone
            }
        }
        Ok(())
    }

    /// Attaches what the prefix index has of a request, and checks that the next step has room for it.
    fn try_to_start(&self, request: &mut Request) -> Result<()> {
        let (sequence, hit) = self.cache.attach_prefix(&PrefixQuery::new(&request.tokens), Stream::NONE)?;
        request.sequence = Some(sequence);
        request.cached = hit.tokens;
        self.cache.can_fit(&batch(self.running.iter().chain([&*request])))
    }

    /// Begins a step for all who run. While pages are missing, the one who started last has to wait again.
    fn begin(&mut self) -> Result<Step> {
        loop {
            match self.cache.begin(&batch(&self.running), Stream::NONE) {
                Err(Error::OutOfPages { required, available, .. }) if self.running.len() > 1 => {
                    let mut request = self.running.pop().expect("two run");
                    let (number, name) = (self.number, request.name);
                    println!("step {number}: pages needed {required}, free {available}: {name} waits");
                    self.release(&mut request)?;
                    self.waiting.push_front(request);
                }
                result => return result,
            }
        }
    }

    /// Takes what the model predicted after each token of a row. Drafts stay as far as they agree with it.
    fn take(&self, request: &mut Request, row: &[i32], predicted: &[i32]) -> Result<()> {
        let plain = request.tokens.len() - request.cached;
        let drafts = &row[plain..];
        let accepted = drafts.iter().zip(&predicted[plain - 1..]).take_while(|(draft, right)| draft == right).count();
        request.cached += plain + accepted;
        if let (Some(sequence), false) = (request.sequence, drafts.is_empty()) {
            self.cache.truncate(&[(sequence, request.cached)])?; // the rejected drafts go
            println!("step {}: {accepted} of the drafts {} are right", self.number, decode(drafts));
            request.drafts.clear();
        }
        request.tokens.extend_from_slice(&predicted[plain - 1..plain + accepted]);
        Ok(())
    }

    /// Gives up the sequence. Its tokens stay findable, until their pages are needed.
    fn release(&self, request: &mut Request) -> Result<()> {
        if let Some(sequence) = request.sequence.take() {
            let query = PrefixQuery::new(&request.tokens[..request.cached]);
            self.cache.publish_prefix(sequence, &query, &PrefixOptions::default())?;
            self.cache.remove(&[sequence])?;
        }
        request.cached = 0;
        Ok(())
    }
}

fn main() -> Result<()> {
    let config = CacheConfig {
        capacity: Capacity::Pages(PAGES),
        rollback_tokens: Some(8),
        deterministic: true,
        prefix_index: true,
        ..config()
    };
    let cache = new_cache(&config)?;
    let mut engine = Engine { cache: cache.clone(), waiting: VecDeque::new(), running: Vec::new(), number: 0 };

    // The system prompt is read before the first request comes. The pin keeps it from being evicted.
    let mut system = Request::new("system", &[], SYSTEM, "");
    system.sequence = Some(cache.add()?);
    cache.step(&batch([&system]), Stream::NONE, |step| run(step, &system.tokens))?;
    system.cached = system.tokens.len();
    engine.release(&mut system)?;
    let (pin, _) = cache.pin_prefix(&PrefixQuery::new(&system.tokens))?;

    engine.waiting.extend(USERS.map(|(name, question)| Request::new(name, &system.tokens, question, "")));
    let done = engine.serve()?;

    // Cy goes on: the second prompt begins with the first conversation.
    let cy = done.iter().find(|request| request.name == "Cy").expect("Cy has an answer");
    engine.waiting.push_back(Request::new("Cy", &cy.tokens, " And then?", "mhnqq"));
    engine.serve()?;

    cache.unpin_prefix(pin)?;
    let stats = cache.stats(None)?;
    let (used, idle, evicted) = (stats.pages_used, stats.pages_idle, stats.pages_evicted);
    println!("pages used {used}, of them only remembered {idle}, evicted {evicted}");
    Ok(())
}
