//! Every kind of layer group, and settings of layers.
use crate::support::*;
use kvcache::*;

#[test]
fn recurrent_states_load_store_and_roll_back() {
    let state = State { dtype: DType::F16, shape: vec![2, 3], ..State::default() };
    let layers = vec![Layer { states: vec![state], ..Layer::default() }];
    let groups = vec![Group::recurrent()];
    let config = CacheConfig { layers, groups, capacity: Capacity::Groups, max_checkpoints: 2, ..config() };
    let cache = Cache::new(&context(), &config).unwrap();
    let sequence = cache.add().unwrap();
    let run = |value: f32| {
        let step = cache.begin(&Batch::new(&[sequence], &[3]), Stream::NONE).unwrap();
        let mut before = [f16::NAN; 6];
        step.load_state(0, 0, &mut TensorMut::new(&mut before, &[1, 2, 3]).unwrap()).unwrap();
        step.store_state(0, 0, &Tensor::new(&[f16::from_f32(value); 6], &[1, 2, 3]).unwrap()).unwrap();
        step.end().unwrap();
        before.map(f16::to_f32)
    };
    assert_eq!(run(1.0), [0.0; 6]);
    cache.checkpoint(&[sequence]).unwrap();
    assert_eq!(run(2.0), [1.0; 6]);
    assert_eq!(cache.nearest_positions(sequence, 4).unwrap(), (3, Some(6)));
    cache.truncate(&[(sequence, 3)]).unwrap();
    assert_eq!(run(3.0), [1.0; 6]);
    assert_eq!(run(4.0), [3.0; 6]);
}

#[test]
fn encoder_sequences() {
    let groups = vec![Group::cross()];
    let cache = Cache::new(&context(), &CacheConfig { groups, ..config() }).unwrap();
    let (sequence, mut random) = (cache.add().unwrap(), Random(30));
    let frames = Tokens::random(7, &mut random);
    let step = cache.begin(&Batch::new(&[sequence], &[7]).encoder_group(0), Stream::NONE).unwrap();
    step.append(0, &Append::new(frames.k(), frames.v())).unwrap();
    step.end().unwrap();
    assert_eq!(cache.encoder_lengths(0, &[sequence]).unwrap(), [7]);
    let mut history = History::default();
    history.push(&frames, 0..7);
    let tokens = Tokens::random(1, &mut random);
    let mut out = vec![f32::NAN; HEADS * DIM];
    let step = cache.begin(&Batch::new(&[sequence], &[1]), Stream::NONE).unwrap();
    let attend = Attend::stored(tokens.q(), TensorMut::new(&mut out, &[1, HEADS, DIM]).unwrap());
    step.attend(0, &attend).unwrap();
    step.end().unwrap();
    assert_close(&out, &history.attention(&tokens.q, 0..7));
}

#[test]
fn latent_rows_and_a_layer_that_reads_another() {
    // One row of 32 for all heads, of which 16 are V: attention with one kv head, k = row, v = its first half.
    let row = 2 * DIM;
    let latent =
        Layer { q_heads: 2, kv_heads: 1, head_dim: row, latent_dim: DIM, softmax_scale: 1.0, ..Layer::default() };
    let reads = Layer { kv_layer: Some(0), ..latent.clone() };
    let groups = vec![Group::full().latent()];
    let config = CacheConfig { layers: vec![latent, reads], groups, ..config() };
    let cache = Cache::new(&context(), &config).unwrap();
    let (sequence, mut random) = (cache.add().unwrap(), Random(31));
    let (q, rows) = (random.numbers(2 * row), random.numbers(row));
    let (mut first, mut second) = (vec![f32::NAN; 2 * DIM], vec![f32::NAN; 2 * DIM]);
    let q = Tensor::new(&q, &[1, 2, row]).unwrap();
    let step = cache.begin(&Batch::new(&[sequence], &[1]), Stream::NONE).unwrap();
    let out = TensorMut::new(&mut first, &[1, 2, DIM]).unwrap();
    let k = Some(Tensor::new(&rows, &[1, 1, row]).unwrap());
    step.attend(0, &Attend { k, ..Attend::stored(q, out) }).unwrap();
    let out = TensorMut::new(&mut second, &[1, 2, DIM]).unwrap();
    step.attend(1, &Attend::stored(q, out)).unwrap();
    step.end().unwrap();
    assert_close(&first[..DIM], &rows[..DIM]); // one key has all the weight
    assert_close(&first[DIM..], &rows[..DIM]);
    assert_eq!(first, second);
}

#[test]
fn rope_settings_are_taken() {
    let factors = vec![1.5; DIM / 2];
    let long = LongRope {
        factor: 4.0,
        original_max_position: 64,
        short_factors: factors.clone(),
        long_factors: factors,
        ..LongRope::default()
    };
    let yarn = Yarn { factor: 4.0, original_max_position: 64, no_truncate: true, ..Yarn::default() };
    let llama =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position: 64 };
    let scalings = [RopeScaling::Linear { factor: 2.0 }, llama, RopeScaling::Yarn(yarn), RopeScaling::LongRope(long)];
    for scaling in scalings {
        let rope = Rope { interleaved: true, ..Rope::on_read(1e5).scaled(scaling.clone()) };
        let layers = vec![Layer { rope, ..layer() }];
        let cache = Cache::new(&context(), &CacheConfig { layers, ..config() }).unwrap();
        let sequence = cache.add().unwrap();
        let set = cache.set_rope(&[sequence], RopeSet::Long);
        assert_eq!(set.is_ok(), matches!(scaling, RopeScaling::LongRope(_)), "{scaling:?}: {set:?}");
        let step = cache.begin(&Batch::new(&[sequence], &[5]), Stream::NONE).unwrap();
        let out = Tokens::random(5, &mut Random(32)).attend(&step, 0).unwrap();
        assert!(out.iter().all(|x| x.is_finite()));
        step.end().unwrap();
    }
}

type Change = dyn for<'a> Fn(&mut Attend<'a>, &'a [f32; HEADS]);

#[test]
fn softcap_and_sinks_matter() {
    let tokens = Tokens::random(4, &mut Random(33));
    let run = |change: &Change| {
        let (cache, logits) = (cache(), [3f32; HEADS]);
        let step = cache.begin(&Batch::new(&[cache.add().unwrap()], &[4]), Stream::NONE).unwrap();
        let mut out = vec![0f32; tokens.q.len()];
        let shape = [4, HEADS, DIM];
        let mut attend = Attend::new(tokens.q(), tokens.k(), tokens.v(), TensorMut::new(&mut out, &shape).unwrap());
        change(&mut attend, &logits);
        step.attend(0, &attend).unwrap();
        out
    };
    let plain = run(&|_, _| ());
    let sinks = run(&|attend, logits| attend.sinks = Some(Tensor::new(logits, &[HEADS]).unwrap()));
    // The first query sees one key: its value, less what the sink takes of the softmax.
    let score: f64 = tokens.q[..DIM].iter().zip(&tokens.k).map(|(q, k)| f64::from(q * k)).sum::<f64>() / 4.0;
    let weight = (score.exp() / (score.exp() + 3f64.exp())) as f32;
    assert_close(&sinks[..DIM], &plain[..DIM].iter().map(|x| x * weight).collect::<Vec<_>>());
    let others: [&Change; 4] = [
        &|attend, _| attend.softcap = 0.5,
        &|attend, _| attend.softmax_scale = 1.0,
        &|attend, _| attend.non_causal = true,
        &|attend, slopes| attend.alibi_slopes = Some(Tensor::new(slopes, &[HEADS]).unwrap()),
    ];
    for change in others {
        assert_ne!(run(change), plain);
    }
}
