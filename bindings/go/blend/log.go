package blend

import (
	"sync"
	"time"

	"libblend.io/go/internal/raw"
)

// LogRecord is something that happened and is the error of no call: a store was opened, a chunk was evicted, a server
// of the remote tier does not answer.
type LogRecord struct {
	Level     LogLevel
	Code      Code   // a BLEND_EVENT_* of blend/log.h, or a negative BLEND_E_* of what failed
	Name      string // of the code: "BLEND_EVENT_EVICTED"
	Component string // "context", "model", "profile", "store", "remote" or "fuse"
	Message   string // one sentence
	Fields    []LogField
	Time      time.Time // when it was made
}

// LogField is a part of a record that a program can use. No record has texts of documents, prompts or answers.
type LogField struct {
	Key   string
	Value any // string, int64 or float64
}

// Args are the fields as log/slog takes them, with the component and the code's name before them:
//
//	Log: func(r blend.LogRecord) {
//		slog.Log(context.Background(), slog.Level(r.Level.Slog()), r.Message, r.Args()...)
//	},
func (r LogRecord) Args() []any {
	args := []any{"component", r.Component, "code", r.Name}
	for _, field := range r.Fields {
		args = append(args, field.Key, field.Value)
	}
	return args
}

// Slog is the level's number in log/slog.
func (l LogLevel) Slog() int {
	switch l {
	case LogError:
		return 8
	case LogWarning:
		return 4
	case LogDebug:
		return -4
	}
	return 0
}

func makeLogRecord(r raw.LogRecord) LogRecord {
	record := LogRecord{Level: LogLevel(r.Level()), Code: Code(r.Code()), Name: r.Name(), Component: r.Component(),
		Message: spoken(r.Message()), Time: time.Unix(0, r.Time_unix_ns())}
	for i := int64(0); i < int64(r.N_fields()); i++ {
		field := LogField{Key: r.Field_key(i)}
		switch r.Field_type(i) {
		case raw.FIELD_TEXT:
			field.Value = r.Field_text(i)
		case raw.FIELD_INTEGER:
			field.Value = r.Field_integer(i)
		default:
			field.Value = r.Field_number(i)
		}
		record.Fields = append(record.Fields, field)
	}
	return record
}

// listening is the goroutine that calls ContextOptions.Log.
type listening struct {
	mutex sync.Mutex
	err   error
	done  chan struct{} // closed when there will be no more records
}

func (l *listening) failure() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.err
}

// pull calls tell for each record until everything of the context is closed.
func (l *listening) pull(told raw.LogQueue, tell func(LogRecord)) {
	record := raw.NewLogRecord()
	defer close(l.done)
	defer raw.DeleteLogQueue(told)
	defer raw.DeleteLogRecord(record)
	for told.Next(-1, record) == 1 {
		made := makeLogRecord(record)
		if err := apart(func() error { tell(made); return nil }); err != nil {
			l.mutex.Lock()
			l.err = err
			l.mutex.Unlock()
			told.Stop()
			return
		}
	}
}
