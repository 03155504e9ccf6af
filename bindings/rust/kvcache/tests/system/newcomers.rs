//! What a newcomer meets: the messages of common mistakes, the text of tensors and errors, steps that end themselves.
use crate::support::*;
use kvcache::*;
use std::fmt::Write;
use std::path::Path;

fn append(cache: &Cache, sequence: Seq, n: usize) {
    let step = cache.begin(&Batch::new(&[sequence], &[n]), Stream::NONE).unwrap();
    Tokens::random(n, &mut Random(3)).attend(&step, 0).unwrap();
    step.end().unwrap();
}

#[test]
fn debug_is_for_people() {
    let numbers = [0f32; 24];
    assert_eq!(format!("{:?}", Tensor::new(&numbers, &[2, 3]).unwrap()), "Tensor(F32[2, 3])");
    let strided = Tensor::strided(&numbers, &[2, 3], &[8, 1]).unwrap();
    assert_eq!(format!("{strided:?}"), "Tensor(F32[2, 3] with strides [8, 1])");
    let mut written = [0f32; 6];
    assert_eq!(format!("{:?}", TensorMut::new(&mut written, &[6]).unwrap()), "TensorMut(F32[6])");
    let cache = cache();
    let error = cache.begin(&Batch::new(&[cache.add().unwrap()], &[300]), Stream::NONE).unwrap_err();
    let words = "Capacity(Cache::begin: 300 tokens exceed max_batch_tokens 64 (KVC_ERROR_BATCH_TOO_LARGE), index 0, required 300, available 64)";
    assert_eq!(format!("{error:?}"), words);
    let rows: Vec<Seq> = (0..5).map(|_| cache.add().unwrap()).collect();
    for row in &rows[..4] {
        append(&cache, *row, 64);
    }
    let full = cache.begin(&Batch::new(&rows[4..], &[1]), Stream::NONE).unwrap_err();
    assert!(format!("{full:?}").starts_with("OutOfPages(Cache::begin: 1 pages"), "{full:?}");
}

/// A step of a closure ends with it, and is aborted if it fails.
#[test]
fn a_step_that_ends_itself() {
    let (cache, mut random) = (cache(), Random(5));
    let sequence = cache.add().unwrap();
    let (batch, tokens) = (Batch::new(&[sequence], &[2]), Tokens::random(2, &mut random));
    let mut out = vec![0f32; 2 * HEADS * DIM];
    let positions = cache.step(&batch, Stream::NONE, |step| {
        let out = TensorMut::new(&mut out, &[2, HEADS, DIM])?;
        step.attend(0, &Attend::new(tokens.q(), tokens.k(), tokens.v(), out))?;
        step.positions()
    });
    assert_eq!(positions.unwrap(), [0, 1]);
    assert_eq!(cache.length(sequence).unwrap(), 2);
    let digest = cache.digest().unwrap();
    let missing = cache.step(&batch, Stream::NONE, |_| Ok(()));
    assert!(missing.unwrap_err().message().contains("layer 0 was neither attended nor appended"));
    let refused: Result<()> = cache.step(&batch, Stream::NONE, |step| {
        step.attend(9, &Attend::stored(tokens.q(), TensorMut::new(&mut out, &[2, HEADS, DIM])?))
    });
    assert_eq!(refused.unwrap_err().status(), Status::OUT_OF_RANGE);
    assert_eq!(cache.digest().unwrap(), digest);
}

#[test]
fn an_empty_range_is_empty() {
    let cache = cache();
    let (sequence, empty) = (cache.add().unwrap(), cache.add().unwrap());
    append(&cache, sequence, 3);
    for range in [0..0, 1..1, 3..3] {
        let exported = cache.export(sequence, 0, range, Stream::NONE).unwrap();
        assert_eq!(exported.k.unwrap().shape(), [0, KV_HEADS as i64, DIM as i64]);
    }
    assert_eq!(cache.export(empty, 0, .., Stream::NONE).unwrap().k.unwrap().shape(), [0, KV_HEADS as i64, DIM as i64]);
    assert_eq!(
        cache.export(sequence, 0, .., Stream::NONE).unwrap().k.unwrap().shape(),
        [3, KV_HEADS as i64, DIM as i64]
    );
}

/// Collects the message of each mistake.
#[derive(Default)]
struct Mistakes(String);

impl Mistakes {
    #[track_caller]
    fn add<T>(&mut self, mistake: &str, result: Result<T>) {
        let Err(error) = result else { panic!("{mistake}: no error") };
        let is_id = |word: &str| word.len() > 12 && word.bytes().all(|letter| letter.is_ascii_digit());
        let words: Vec<_> =
            error.to_string().split(' ').map(|word| if is_id(word) { "ID".into() } else { word.to_string() }).collect();
        let message = words.join(" "); // ids differ from run to run
        writeln!(self.0, "{mistake}\n    {message}").unwrap();
    }

    fn tensors(&mut self, step: &Step) {
        static NUMBERS: [f32; 3 * 4 * 16] = [0.0; 3 * 4 * 16];
        static INTEGERS: [i32; 3 * 4 * 16] = [0; 3 * 4 * 16];
        let new = |shape: &[usize]| Tensor::new(&NUMBERS, shape).unwrap();
        let (q, k) = (new(&[3, 4, 16]), new(&[3, 1, 16]));
        let mut attend = |mistake: &str, layer: usize, change: &dyn Fn(&mut Attend<'_>)| {
            let mut written = [0f32; 3 * 4 * 16];
            let mut args = Attend::new(q, k, k, TensorMut::new(&mut written, &[3, 4, 16]).unwrap());
            change(&mut args);
            self.add(mistake, step.attend(layer, &args));
        };
        attend("k has the wrong number of heads", 1, &|args| args.k = Some(new(&[3, 2, 16])));
        attend("q has no dimension of heads", 1, &|args| args.q = new(&[3, 64]));
        attend("q has too few tokens", 1, &|args| args.q = new(&[2, 4, 16]));
        attend("q has elements of a wrong type", 1, &|args| args.q = Tensor::new(&INTEGERS, &[3, 4, 16]).unwrap());
        attend("v is left out", 1, &|args| args.v = None);
        attend("a layer attends before its k and v are stored", 1, &|args| (args.k, args.v) = (None, None));
        attend("a layer does not exist", 7, &|_| ());
        let mut narrow = [0f32; 3 * 4 * 8];
        let args = Attend::new(q, k, k, TensorMut::new(&mut narrow, &[3, 4, 8]).unwrap());
        self.add("out has the wrong head dim", step.attend(1, &args));
        self.add("a slice is shorter than its tensor", Tensor::new(&NUMBERS[..100], &[3, 4, 16]));
    }

    fn steps(&mut self, cache: &Cache, sequences: [Seq; 2], step: Step) {
        let begin = |sequence: Seq, n: usize| cache.begin(&Batch::new(&[sequence], &[n]), Stream::NONE);
        let numbers = [0f32; 3 * 4 * 16];
        let (q, k) = (Tensor::new(&numbers, &[3, 4, 16]).unwrap(), Tensor::new(&numbers, &[3, 1, 16]).unwrap());
        let attend = |step: &Step, layer: usize| {
            let mut written = [0f32; 3 * 4 * 16];
            step.attend(layer, &Attend::new(q, k, k, TensorMut::new(&mut written, &[3, 4, 16])?))
        };
        attend(&step, 0).unwrap();
        self.add("a layer attends twice", attend(&step, 0));
        self.add("a step ends before every layer has its tokens", step.end());
        let step = begin(sequences[0], 3).unwrap();
        (0..2).for_each(|layer| attend(&step, layer).unwrap());
        let canceller = step.canceller();
        step.end().unwrap();
        self.add("a step is used after its end", canceller.cancel()); // the compiler refuses the other ways
        let step = begin(sequences[0], 3).unwrap();
        self.add("a sequence of an open step is truncated", cache.truncate(&[(sequences[0], 0)]));
        let second = begin(sequences[1], 1).unwrap();
        let third = cache.add().unwrap();
        self.add("a third step begins", begin(third, 1));
        second.abort().unwrap();
        step.canceller().cancel().unwrap();
        self.add("a cancelled step ends", step.end());
        cache.remove(&[third]).unwrap();
        self.add("a removed sequence is used", begin(third, 1));
        let twice = [sequences[0], sequences[0]];
        self.add("a sequence occurs twice", cache.begin(&Batch::new(&twice, &[1, 1]), Stream::NONE));
        self.add("a row has no length", cache.begin(&Batch::new(&twice, &[1]), Stream::NONE));
        self.add("a step has no new tokens", begin(sequences[0], 0));
        self.add("a step needs more pages than there are", begin(sequences[0], 40));
        self.add("a step is larger than max_batch_tokens", begin(sequences[0], 65));
    }

    fn configs(&mut self) {
        let mut create = |mistake: &str, change: &dyn Fn(&mut CacheConfig)| {
            let mut config = two_layers();
            change(&mut config);
            self.add(mistake, Cache::new(&context(), &config));
        };
        create("q heads are no multiple of kv heads", &|config| config.layers[1].kv_heads = 3);
        create("a layer's group does not exist", &|config| config.layers[1].group = 2);
        create("a cache has no capacity", &|config| config.capacity = Capacity::Tokens(0));
        create("the head dim is forgotten", &|config| config.layers[1].head_dim = 0);
        create("kv_layer names a later layer", &|config| config.layers[0].kv_layer = Some(1));
    }
}

fn two_layers() -> CacheConfig {
    let layer = Layer { q_heads: 4, kv_heads: 1, head_dim: 16, ..Layer::default() };
    CacheConfig {
        layers: vec![layer.clone(), layer],
        page_size: 4,
        max_sequences: 4,
        max_batch_tokens: 64,
        capacity: Capacity::Tokens(32),
        ..CacheConfig::default()
    }
}

/// tests/api/messages_test.cc makes the same mistakes in C.
#[test]
fn messages_of_common_mistakes() {
    let mut mistakes = Mistakes::default();
    let cache = Cache::new(&context(), &two_layers()).unwrap();
    let sequences = [cache.add().unwrap(), cache.add().unwrap()];
    let step = cache.begin(&Batch::new(&sequences[..1], &[3]), Stream::NONE).unwrap();
    mistakes.tensors(&step);
    mistakes.steps(&cache, sequences, step);
    mistakes.add("tokens beyond the end are exported", cache.export(sequences[0], 0, 0..9, Stream::NONE));
    mistakes.add("a sequence is truncated beyond its end", cache.truncate(&[(sequences[0], 9)]));
    mistakes.add("a group does not exist", cache.stats(Some(3)));
    mistakes.add("a tier is added without a prefix index", cache.add_disk_tier("tier", &DiskTierOptions::default()));
    mistakes
        .add("a prefix is loaded without a tier", cache.load_prefix(&PrefixQuery::new(&[1]), &LoadOptions::default()));
    mistakes.configs();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../messages/rust.txt");
    if std::env::var_os("KVC_UPDATE_MESSAGES").is_some() {
        std::fs::write(&golden, &mistakes.0).unwrap();
    }
    let text = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(text == mistakes.0, "KVC_UPDATE_MESSAGES=1 writes {}; now:\n{}", golden.display(), mistakes.0);
}
