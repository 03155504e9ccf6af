package main

import (
	"encoding/hex"

	"kvcache.dev/kvcache"
)

var events = map[string]func(*script) ([]string, error){
	"events": func(s *script) ([]string, error) {
		var found kvcache.EventRange
		var err error
		if s.has("snapshot") {
			found, err = s.cache().EventSnapshot()
		} else {
			found, err = s.cache().ReadEvents(uint64(s.integer("next")), s.integerOr("most", 256))
		}
		return eventResults(found), err
	},
	"event_message": func(s *script) ([]string, error) {
		format := kvcache.MessageFormat{Timestamp: s.number("timestamp"), Arrays: s.has("arrays"),
			ShortHashes: s.has("short_hashes"), MaxBytes: s.integer("max_bytes")}
		if s.has("rank") {
			rank := s.integer("rank")
			format.DataParallelRank = &rank
		}
		var message kvcache.EventMessage
		var err error
		if s.has("snapshot") {
			message, err = s.cache().EventSnapshotMessage(format)
		} else {
			message, err = s.cache().EventMessage(uint64(s.integer("next")), format)
		}
		return []string{result("begin", message.Begin), result("end", message.End), result("newest", message.Newest),
			result("count", message.Count), result("payload", hex.EncodeToString(message.Payload))}, err
	},
}

func eventResults(found kvcache.EventRange) []string {
	var kinds, groups, tiers, positions, sessions, salted []int64
	var tokens []int32
	var keys, parents []byte
	for _, event := range found.Events {
		var parent kvcache.PageKey
		if event.Parent != nil {
			parent = *event.Parent
		}
		isSalted := int64(0)
		if event.Salted {
			isSalted = 1
		}
		kinds, groups = append(kinds, int64(event.Kind)), append(groups, int64(event.Group))
		tiers = append(tiers, int64(event.Tier))
		positions, salted = append(positions, event.Position), append(salted, isSalted)
		sessions, tokens = append(sessions, int64(event.Session)), append(tokens, event.Tokens...)
		keys, parents = append(keys, event.Key[:]...), append(parents, parent[:]...)
	}
	return []string{result("begin", found.Begin), result("end", found.End), result("newest", found.Newest), integers("kinds", kinds),
		integers("groups", groups), integers("tiers", tiers), result("keys", hex.EncodeToString(keys)), result("parents", hex.EncodeToString(parents)),
		integers("positions", positions), integers("sessions", sessions), integers("salted", salted), integers("tokens", tokens)}
}
