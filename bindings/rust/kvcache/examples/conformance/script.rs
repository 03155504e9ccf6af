//! One script: what it has named, and the words of the line that runs.
use crate::value::Buffer;
use kvcache::{Cache, Context, Graph, Group, Layer, LoadJob, Plan, Seq, Step, Transfer};
use std::collections::HashMap;
use std::str::FromStr;

const NEVER_BOUND: u64 = 1 << 60;

/// Why an operation gave no result.
pub enum Stop {
    /// The types of the binding rule it out.
    Skip,
    Failed(String),
    Error(kvcache::Error),
}

impl From<kvcache::Error> for Stop {
    fn from(error: kvcache::Error) -> Self {
        Stop::Error(error)
    }
}

pub type Done<T> = Result<T, Stop>;

#[derive(Default)]
pub struct Script {
    pub words: HashMap<String, String>,
    pub contexts: HashMap<i64, Context>,
    pub steps: HashMap<i64, Step>,
    /// Steps that a failed `end` consumed.
    pub ended: Vec<i64>,
    pub graphs: HashMap<i64, Graph>,
    /// Of steps in graphs, open or not: what a recorded program calls.
    pub replays: HashMap<i64, Graph>,
    pub plans: HashMap<i64, Plan>,
    pub caches: HashMap<i64, Cache>,
    pub bound: HashMap<i64, Seq>,
    pub tensors: HashMap<String, Buffer>,
    pub layers: Vec<(Layer, HashMap<String, String>)>,
    pub groups: Vec<Group>,
    /// Of the last `attach_pending`.
    pub job: Option<LoadJob>,
    pub transfers: HashMap<i64, Transfer>,
    pub descriptions: HashMap<i64, Vec<u8>>,
}

fn parsed<T: FromStr>(word: &str) -> Done<T> {
    // What is a number, but none of this type, the binding cannot say.
    word.parse().map_err(|_| match word.parse::<f64>() {
        Ok(_) => Stop::Skip,
        Err(_) => Stop::Failed(format!("{word} is no number")),
    })
}

impl Script {
    pub fn word(&self, key: &str) -> Option<&str> {
        self.words.get(key).map(String::as_str)
    }

    pub fn has(&self, key: &str) -> bool {
        self.words.contains_key(key)
    }

    /// An absent number is 0.
    pub fn number<T: FromStr + Default>(&self, key: &str) -> Done<T> {
        self.word(key).map_or(Ok(T::default()), parsed)
    }

    pub fn optional<T: FromStr>(&self, key: &str) -> Done<Option<T>> {
        self.word(key).map(parsed).transpose()
    }

    pub fn list<T: FromStr>(&self, key: &str) -> Done<Vec<T>> {
        self.word(key).unwrap_or("").split(',').filter(|item| !item.is_empty()).map(parsed).collect()
    }

    pub fn sequences(&self, key: &str) -> Done<Vec<Seq>> {
        let id = |ordinal: i64| match ordinal {
            -1 => Seq::INERT,
            ordinal => self.bound.get(&ordinal).copied().unwrap_or(Seq(NEVER_BOUND + ordinal as u64)),
        };
        Ok(self.list(key)?.into_iter().map(id).collect())
    }

    pub fn sequence(&self) -> Done<Seq> {
        self.sequences("seq")?.first().copied().ok_or(Stop::Skip)
    }

    /// Sequences, and a number for each.
    pub fn pairs<T: FromStr>(&self, numbers: &str) -> Done<Vec<(Seq, T)>> {
        let (sequences, numbers) = (self.sequences("seqs")?, self.list(numbers)?);
        if sequences.len() != numbers.len() {
            return Err(Stop::Skip);
        }
        Ok(sequences.into_iter().zip(numbers).collect())
    }

    pub fn bind(&mut self, ids: &[Seq]) -> Done<()> {
        self.bound.extend(self.list("seqs")?.into_iter().zip(ids.iter().copied()));
        Ok(())
    }

    /// A group, or the whole cache.
    pub fn group(&self) -> Done<Option<usize>> {
        match self.optional::<i64>("group")? {
            None | Some(-1) => Ok(None),
            Some(group) => usize::try_from(group).map(Some).map_err(|_| Stop::Skip),
        }
    }

    pub fn context(&self) -> Done<&Context> {
        self.contexts.get(&self.number("context")?).ok_or(Stop::Skip)
    }

    pub fn cache(&self) -> Done<&Cache> {
        self.caches.get(&self.number("cache")?).ok_or(Stop::Skip)
    }

    pub fn step(&self) -> Done<&Step> {
        self.steps.get(&self.number("step")?).ok_or(Stop::Skip)
    }

    pub fn graph(&self) -> Done<&Graph> {
        let number = self.number("graph")?;
        self.graphs.get(&number).ok_or_else(|| Stop::Failed(format!("no graph {number}")))
    }

    pub fn replay(&self) -> Done<Option<&Graph>> {
        Ok(self.replays.get(&self.number("step")?))
    }

    pub fn parse(&self, form: &str) -> Done<Option<Buffer>> {
        if form == "-" {
            return Ok(None);
        }
        let buffer = match form.strip_prefix('$') {
            Some(name) => self.tensors.get(name).cloned(),
            None => Buffer::parse(form),
        };
        buffer.map(Some).ok_or_else(|| Stop::Failed(format!("no tensor {form}")))
    }

    pub fn tensor(&self, key: &str) -> Done<Option<Buffer>> {
        self.word(key).map_or(Ok(None), |form| self.parse(form))
    }

    /// One that the binding's types demand.
    pub fn needed(&self, key: &str) -> Done<Buffer> {
        self.tensor(key)?.ok_or(Stop::Skip)
    }

    /// A copy, for a call that writes: `keep` puts it in the place of what has the name.
    pub fn output(&self, key: &str) -> Done<Option<Buffer>> {
        Ok(self.tensor(key)?.map(|buffer| buffer.copy()))
    }

    pub fn keep(&mut self, key: &str, buffer: Option<&Buffer>) {
        if let (Some(name), Some(buffer)) = (self.word(key).and_then(|form| form.strip_prefix('$')), buffer) {
            self.tensors.insert(name.into(), buffer.clone());
        }
    }

    pub fn tensors_of(&self, key: &str) -> Done<Vec<Option<Buffer>>> {
        self.word(key).map_or(Ok(vec![]), |forms| forms.split(';').map(|form| self.parse(form)).collect())
    }
}
