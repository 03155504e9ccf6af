// All users in one batch: prompts in chunks, decode beside them, and a user who leaves in the middle of a step.
package main

import (
	"context"
	"fmt"
	"log"
	"slices"
	"strings"

	"kvcache.dev/examples/guide/model"
	"kvcache.dev/kvcache"
)

const (
	systemPrompt = "You are a terse assistant. Answer in one short word. "
	answerTokens = 8
	chunk        = 16 // most tokens that one row appends in a step, so that a long prompt does not hold up the others

	leaves       = "Ada" // who closes the connection,
	leavesInStep = 5     // and in which step
)

var questions = []struct{ name, text string }{
	{"Ada", "What is a page?"}, {"Bob", "What does a fork share, and what does it copy?"}, {"Cy", "Why?"}}

type user struct {
	name     string
	sequence kvcache.Seq
	pending  []int32 // tokens that are not in the cache yet
	answer   []int32
}

func readSystemPrompt(ctx context.Context, cache *kvcache.Cache) (kvcache.Seq, error) {
	sequence, err := cache.Add()
	if err != nil {
		return 0, err
	}
	for tokens := range slices.Chunk(model.Encode(systemPrompt), chunk) {
		batch := kvcache.Batch{Sequences: []kvcache.Seq{sequence}, AppendLengths: []int32{int32(len(tokens))}}
		err := cache.Step(ctx, batch, func(step *kvcache.Step) error {
			_, err := model.Run(ctx, step, tokens)
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return sequence, nil
}

// stepOf runs one step of all users. It returns those who stay.
func stepOf(ctx context.Context, cache *kvcache.Cache, number int, users []*user) ([]*user, error) {
	var batch kvcache.Batch
	var tokens []int32
	var rows []string
	var gone *user
	for _, u := range users {
		count := min(len(u.pending), chunk)
		batch.Sequences = append(batch.Sequences, u.sequence)
		batch.AppendLengths = append(batch.AppendLengths, int32(count))
		tokens = append(tokens, u.pending[:count]...)
		rows = append(rows, fmt.Sprint(u.name, " ", count))
		if u.name == leaves && number == leavesInStep {
			gone = u
		}
	}
	var predicted []int32
	err := cache.Step(ctx, batch, func(step *kvcache.Step) (err error) {
		if gone != nil {
			if err := cache.Remove(gone.sequence); err != nil { // its pages become free when the step ends
				return err
			}
		}
		predicted, err = model.Run(ctx, step, tokens)
		return err
	})
	if err != nil {
		return nil, err
	}
	fmt.Printf("step %d: %s\n", number, strings.Join(rows, ", "))

	end := 0
	var staying []*user
	for i, u := range users {
		count := int(batch.AppendLengths[i])
		end += count // the rows of a batch come one after another
		u.pending = u.pending[count:]
		if u == gone {
			fmt.Println(u.name, "left after", model.Decode(u.answer))
			continue
		}
		if len(u.pending) == 0 { // the whole prompt is read: the last row has the next token
			u.answer = append(u.answer, predicted[end-1])
			u.pending = []int32{predicted[end-1]}
		}
		if len(u.answer) < answerTokens {
			staying = append(staying, u)
			continue
		}
		fmt.Printf("%s: %s\n", u.name, model.Decode(u.answer))
		if err := cache.Remove(u.sequence); err != nil {
			return nil, err
		}
	}
	return staying, nil
}

func run(ctx context.Context) error {
	config := model.Config()
	config.CapacityTokens, config.RollbackTokens, config.Deterministic = 1024, 8, true
	cache, err := kvcache.New(config)
	if err != nil {
		return err
	}
	defer cache.Close()

	system, err := readSystemPrompt(ctx, cache)
	if err != nil {
		return err
	}
	sequences, err := cache.Fork(system, system, system)
	if err != nil {
		return err
	}
	if err := cache.Remove(system); err != nil {
		return err
	}
	var users []*user
	for i, question := range questions {
		users = append(users, &user{name: question.name, sequence: sequences[i], pending: model.Encode(question.text)})
	}

	for number := 1; len(users) > 0; number++ {
		if users, err = stepOf(ctx, cache, number, users); err != nil {
			return err
		}
	}
	stats, err := cache.Stats(kvcache.WholeCache)
	if err == nil {
		fmt.Println(stats.PagesUsed, "pages in use")
	}
	return err
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
