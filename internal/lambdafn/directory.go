package lambdafn

import (
	"fmt"

	"github.com/countersign/countersign/internal/people/person"
)

// envDirectory is the document of people itself, which person.Read reads, of every function that tells people or knows them by a link or from
// Slack; empty = nobody is known.
const envDirectory = "COUNTERSIGN_DIRECTORY"

// directory is the directory of a function that does not need one: where it cannot be read, nobody is known, which lets nobody do anything.
func directory(getenv func(string) string, watch *Observer) *person.Book {
	book, err := readDirectory(getenv)
	if err != nil {
		watch.without("the directory of people", err)
		return &person.Book{}
	}
	return book
}

// readDirectory is the directory of a function. Its error says where the document is wrong, and has no address in it.
func readDirectory(getenv func(string) string) (*person.Book, error) {
	text := getenv(envDirectory)
	if text == "" {
		return &person.Book{}, nil
	}
	book, err := person.Read([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envDirectory, err)
	}
	return book, nil
}
