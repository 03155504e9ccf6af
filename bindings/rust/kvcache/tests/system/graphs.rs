//! Graphs: what was recorded once is replayed in later steps, and refused while none is open.
use crate::support::*;
use kvcache::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const TOKENS: usize = 8;

fn graph(cache: &Cache) -> Graph {
    Graph::new(cache, &GraphConfig { max_sequences: 3, max_tokens: TOKENS, ..GraphConfig::default() }).unwrap()
}

/// A model of one layer that was recorded once: a graph, and buffers that stay where they are.
struct Program {
    graph: Graph,
    tokens: Tokens,
    out: Vec<f32>,
}

impl Program {
    fn new(graph: &Graph) -> Self {
        let out = vec![7.0; TOKENS * HEADS * DIM];
        Self { graph: graph.clone(), tokens: Tokens::random(TOKENS, &mut Random(0)), out }
    }

    fn replay(&mut self) -> Result<()> {
        let (tokens, out) = (&self.tokens, TensorMut::new(&mut self.out, &[TOKENS, HEADS, DIM])?);
        self.graph.attend(0, &Attend::new(tokens.q(), tokens.k(), tokens.v(), out))
    }

    /// Numbers of this round in its buffers, and nothing computed yet.
    fn fill(&mut self, random: &mut Random) {
        let Tokens { q, k, v, .. } = &mut self.tokens;
        for buffer in [q, k, v] {
            *buffer = random.numbers(buffer.len());
        }
        self.out.fill(7.0);
    }
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

#[test]
fn replays_give_the_bits_of_plain_steps() {
    let (cache, mut random) = (cache(), Random(1));
    let (replayed, plain) = (cache.add_many(3).unwrap(), cache.add_many(3).unwrap());
    let graph = graph(&cache);
    let mut program = Program::new(&graph);
    for round in 0..24 {
        let rows: Vec<usize> = (round..=round + round % 2).map(|row| row % 3).collect();
        let lengths = vec![1 + round % 4; rows.len()];
        let total: usize = lengths.iter().sum();
        let batch = |ids: &[Seq]| Batch::new(&rows.iter().map(|row| ids[*row]).collect::<Vec<_>>(), &lengths);
        program.fill(&mut random);
        let batches = (batch(&replayed).graph(&graph), batch(&plain));
        cache.can_fit(&batches.0).unwrap();

        let step = cache.begin(&batches.0, Stream::NONE).unwrap();
        assert_eq!((step.as_raw(), step.graph().map(Graph::as_raw)), (graph.as_raw(), Some(graph.as_raw())));
        program.replay().unwrap();
        let positions = step.positions().unwrap();
        step.end().unwrap();

        let step = cache.begin(&batches.1, Stream::NONE).unwrap();
        assert!(step.graph().is_none());
        let expected = program.tokens.attend(&step, 0).unwrap();
        assert_eq!(positions, step.positions().unwrap());
        step.end().unwrap();

        let used = total * HEADS * DIM;
        assert_eq!(bits(&program.out[..used]), bits(&expected[..used]), "round {round}");
        assert!(program.out[used..].iter().all(|x| *x == 7.0), "round {round} wrote after its tokens");
        assert_eq!(cache.lengths(&replayed).unwrap(), cache.lengths(&plain).unwrap());
    }
    cache.check_invariants().unwrap();
}

#[test]
fn a_replay_without_a_step_is_stale_and_touches_nothing() {
    let states = vec![State { dtype: DType::F32, shape: vec![2], ..State::default() }];
    let layers = vec![layer(), Layer { states, group: 1, ..Layer::default() }];
    let groups = vec![Group::full(), Group::recurrent()];
    let cache = Cache::new(&context(), &CacheConfig { layers, groups, ..config() }).unwrap();
    let (graph, sequence) = (graph(&cache), cache.add().unwrap());
    let mut program = Program::new(&graph);
    let tokens = Tokens::random(2, &mut Random(5));
    let new = Append::new(tokens.k(), tokens.v());
    let mut state = [9f32; 2];

    let step = cache.begin(&Batch::new(&[sequence], &[2]).graph(&graph), Stream::NONE).unwrap();
    graph.append(0, &new).unwrap();
    graph.load_state(1, 0, &mut TensorMut::new(&mut state, &[1, 2]).unwrap()).unwrap();
    assert_eq!(state, [0.0; 2]);
    graph.store_state(1, 0, &Tensor::new(&[3f32, 4.0], &[1, 2]).unwrap()).unwrap();
    step.end().unwrap();

    let (digest, before) = (cache.digest().unwrap(), state);
    let mut refused = |status: Status| {
        let error = program.replay().unwrap_err();
        assert!(matches!(&error, Error::State(_)) == (status == Status::STALE), "{error:?}");
        let mut to = TensorMut::new(&mut state, &[1, 2]).unwrap();
        let statuses = [
            error.status(),
            graph.append(0, &new).unwrap_err().status(),
            graph.load_state(1, 0, &mut to).unwrap_err().status(),
            graph.store_state(1, 0, &Tensor::new(&[1f32, 1.0], &[1, 2]).unwrap()).unwrap_err().status(),
        ];
        assert_eq!(statuses, [status; 4]);
        assert_eq!((state, cache.digest().unwrap()), (before, digest));
        assert!(program.out.iter().all(|x| *x == 7.0));
    };
    refused(Status::STALE);
    graph.clone().close().unwrap(); // of all clones
    refused(Status::STALE_ID);
    assert_eq!(graph.close().unwrap_err().status(), Status::STALE_ID);
    let batch = Batch::new(&[sequence], &[1]).graph(&graph);
    assert_eq!(cache.begin(&batch, Stream::NONE).unwrap_err().status(), Status::STALE_ID);

    let step = cache.begin(&Batch::new(&[sequence], &[1]), Stream::NONE).unwrap();
    step.load_state(1, 0, &mut TensorMut::new(&mut state, &[1, 2]).unwrap()).unwrap();
    assert_eq!(state, [3.0, 4.0]);
}

#[test]
fn a_graph_has_one_step_at_a_time() {
    let cache = Cache::new(&context(), &CacheConfig { max_open_steps: 1, ..config() }).unwrap();
    let sequences = cache.add_many(4).unwrap();
    let graph = graph(&cache);
    let batch = |row: usize| Batch::new(&sequences[row..=row], &[1]);
    let begin = |row| cache.begin(&batch(row).graph(&graph), Stream::NONE);
    let plain = cache.begin(&batch(0), Stream::NONE).unwrap(); // the one that the cache allows beside graphs
    let step = begin(1).unwrap();
    assert_eq!(begin(2).unwrap_err().status(), Status::BUSY);
    assert_eq!(cache.can_fit(&batch(2).graph(&graph)).unwrap_err().status(), Status::BUSY);
    assert_eq!(graph.close().unwrap_err().status(), Status::BUSY);
    let mut program = Program::new(&graph);
    program.replay().unwrap();
    step.end().unwrap();
    drop(begin(2).unwrap()); // aborted, which makes room as well
    assert_eq!(cache.lengths(&sequences).unwrap(), [0, 1, 0, 0]);
    begin(3).unwrap().canceller().cancel().unwrap();
    drop(plain);

    // A step keeps the graph, and the graph its cache.
    let step = begin(3).unwrap();
    drop((program, graph, cache));
    let tokens = Tokens::random(1, &mut Random(2));
    tokens.attend(&step, 0).unwrap();
    let cache = step.cache().clone();
    step.end().unwrap();
    assert_eq!(cache.length(sequences[3]).unwrap(), 1);
}

#[test]
fn too_large() {
    let cache = cache();
    let sequences = cache.add_many(4).unwrap();
    let graph = graph(&cache);
    for (rows, length, required, available) in [(4, 1, 4, 3), (3, 3, 9, TOKENS)] {
        let batch = Batch::new(&sequences[..rows], &vec![length; rows]).graph(&graph);
        let error = cache.begin(&batch, Stream::NONE).unwrap_err();
        let Error::Capacity(failure) = &error else { panic!("{error:?}") };
        let numbers = (failure.status, failure.required, failure.available);
        assert_eq!(numbers, (Status::BATCH_TOO_LARGE, required, available as u64));
    }
    let none = GraphConfig::default();
    let refused = |config: GraphConfig| Graph::new(&cache, &config).unwrap_err().status();
    assert_eq!(refused(GraphConfig { max_sequences: 17, ..none }), Status::OUT_OF_RANGE);
    assert_eq!(refused(GraphConfig { max_tokens: 65, ..none }), Status::OUT_OF_RANGE);
    assert_eq!(refused(GraphConfig { max_tokens: usize::MAX, ..none }), Status::OUT_OF_RANGE);
    assert_eq!(refused(GraphConfig { max_pages_per_row: (1 << 26) + 1, ..none }), Status::OUT_OF_RANGE);

    let others: Vec<Graph> = (1..64).map(|_| Graph::new(&cache, &none).unwrap()).collect();
    assert_eq!(refused(none), Status::TOO_MANY_FORWARDS);
    others[7].close().unwrap();
    drop(others); // frees each that is not closed
    drop((1..64).map(|_| Graph::new(&cache, &none).unwrap()).collect::<Vec<_>>());
}

#[test]
fn tables_stay_where_they_are() {
    let (cache, random) = (cache(), &mut Random(3));
    let sequences = cache.add_many(3).unwrap();
    let config = GraphConfig { max_sequences: 3, max_tokens: TOKENS, max_pages_per_row: 2 };
    let graph = Graph::new(&cache, &config).unwrap();
    let mut program = Program::new(&graph);
    let (mut addresses, mut words) = (vec![], vec![]);
    for (rows, expected) in [(vec![0], [5, 0, 0]), (vec![2, 0], [2, 6, 0])] {
        let lengths: Vec<usize> =
            rows.iter().map(|row| [if addresses.is_empty() { 5 } else { 1 }, 0, 2][*row]).collect();
        let ids: Vec<Seq> = rows.iter().map(|row| sequences[*row]).collect();
        let mut step = cache.begin(&Batch::new(&ids, &lengths).graph(&graph), Stream::NONE).unwrap();
        program.fill(random);
        program.replay().unwrap();
        let tables = step.tables(0, TablesOptions::default()).unwrap();
        assert_eq!(tables.cache_seqlens.as_slice::<i32>().unwrap(), expected);
        let (block_table, slots) = (tables.block_table.unwrap(), tables.slot_mapping.unwrap());
        assert_eq!((block_table.shape(), slots.shape()), (vec![3, 2], vec![TOKENS]));
        let total: usize = lengths.iter().sum();
        assert!(slots.as_slice::<i64>().unwrap().iter().enumerate().all(|(i, slot)| (*slot >= 0) == (i < total)));
        let word = tables.generation_word.unwrap();
        assert_eq!(word.as_slice::<i64>().unwrap(), [tables.generation as i64]);
        words.push(tables.generation);
        addresses.push([tables.cache_seqlens.data(), block_table.data(), slots.data(), word.data()]);
        step.release_tables(); // but a graph's table keeps its arrays
        let other = TablesOptions { arrays: Arrays { csr: false, ..Arrays::default() }, ..TablesOptions::default() };
        assert_eq!(step.tables(0, other).unwrap_err().status(), Status::INVALID_ARGUMENT);
        step.end().unwrap();
    }
    assert_eq!(addresses[0], addresses[1]);
    assert!(0 < words[0] && words[0] < words[1], "{words:?}");
}

#[test]
fn a_step_is_dropped_while_its_graph_computes() {
    let config = CacheConfig { capacity: Capacity::Tokens(8192), max_batch_tokens: 1024, ..config() };
    let cache = Cache::new(&context(), &config).unwrap();
    let (graph, sequence) = (Graph::new(&cache, &GraphConfig::default()).unwrap(), cache.add().unwrap());
    let (done, stopped) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let tokens = Tokens::random(1024, &mut Random(4));
            let mut out = vec![0f32; tokens.q.len()];
            while !done.load(Ordering::Relaxed) {
                let out = TensorMut::new(&mut out, &[tokens.n, HEADS, DIM]).unwrap();
                match graph.attend(0, &Attend::new(tokens.q(), tokens.k(), tokens.v(), out)) {
                    Err(error) if error.status() == Status::CANCELLED => _ = stopped.fetch_add(1, Ordering::Relaxed),
                    Err(error) => assert!([Status::STALE, Status::ORDER].contains(&error.status()), "{error}"),
                    Ok(()) => {}
                }
            }
        });
        let batch = Batch::new(&[sequence], &[1024]).graph(&graph);
        for round in 0.. {
            let Ok(step) = cache.begin(&batch, Stream::NONE) else { break }; // BUSY, had the last one been left open
            std::thread::sleep(std::time::Duration::from_micros(500));
            drop(step);
            if stopped.load(Ordering::Relaxed) > 3 || round == 2000 {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(stopped.into_inner() > 3, "no attend was in progress when its step was dropped");
    graph.close().unwrap();
    assert_eq!(cache.stats(None).unwrap().pages_used, 0);
}
