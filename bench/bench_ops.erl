%% What the operations share: guests, rows, figures with their bars, and the table of both.
-module(bench_ops).

-export([trivial/0, trivial/1, measure/2, timed_rows/2, floor_rows/2, p50/2, ratio/5, value/4]).
-export([markdown/2]).
-export_type([context/0, result/0, figure/0, bar/0, size/0]).

-type size() :: #{samples := pos_integer(), turn := pos_integer(), instances := pos_integer(),
                  messages := pos_integer(), ms := pos_integer(), deadlines := pos_integer()}.
%% How much an operation measures; `ms' is the length of what runs for a time.
-type context() :: #{runners := [thread | scheduler, ...], size := size(),
                     floor := none | bench_floor:floor()}.
-type bar() :: none | {at_most | at_least, number()}.
-type figure() :: {string(), number(), ratio | us | ms | kib | count, bar()}.
-type result() :: #{samples := [{string(), [number(), ...]}], figures := [figure()]}.
%% Samples in nanoseconds, by the title of their row.

-callback run(context()) -> result().

%% @doc The module of one function that the floor program has, too. In the pool of the benchmarks.
-spec trivial() -> wasmtime:wasm_module().
trivial() -> trivial(#{}).

%% @doc With these options of the pool changed.
-spec trivial(map()) -> wasmtime:wasm_module().
trivial(Change) ->
    Here = filename:dirname(proplists:get_value(source, module_info(compile))),
    {ok, Text} = file:read_file(filename:join(Here, "trivial.wat")),
    Options = bench_guest:pooled(Change),
    bench_guest:must("the trivial module", wasmtime:compile({wat, Text}, Options)).

%% @doc The samples of rows that take turns.
-spec measure([bench_rounds:row()], context()) -> [{string(), [number(), ...]}].
measure(Rows, #{size := #{samples := Samples, turn := Turn}}) ->
    bench_rounds:run(Rows, Turn, bench_rounds:turns(Samples, Turn)).

%% @doc A row of a function that answers the nanoseconds it took.
-spec timed_rows([Key], fun((Key) -> {string(), fun(() -> number())})) -> [bench_rounds:row()].
timed_rows(Keys, Make) ->
    [{Title, fun(Count) -> [Once() || _ <- lists:seq(1, Count)] end}
     || {Title, Once} <- lists:map(Make, Keys)].

%% @doc The floor program's rows of an operation, if it is there.
-spec floor_rows(context(), string()) -> [bench_rounds:row()].
floor_rows(#{floor := none}, _) -> [];
floor_rows(#{floor := Floor}, Operation) ->
    [{Title, fun(Count) -> bench_floor:run(Floor, Row, Count) end}
     || {Way, Title} <- [{"plain", "plain Rust"}, {"core", "guest core in Rust"}],
        {Row, Name} <- bench_floor:rows(Floor), Name =:= Way ++ " " ++ Operation].

%% @doc The median of a row, in microseconds.
-spec p50(string(), [{string(), [number(), ...]}]) -> float().
p50(Title, Samples) ->
    {_, Nanos} = lists:keyfind(Title, 1, Samples),
    bench_stats:us(bench_stats:median(Nanos)).

%% @doc The ratio of the medians of two rows; none when one of them was not measured.
-spec ratio(string(), string(), string(), [{string(), [number(), ...]}], bar()) -> [figure()].
ratio(Title, Above, Below, Samples, Bar) ->
    case lists:keymember(Above, 1, Samples) andalso lists:keymember(Below, 1, Samples) of
        true -> value(Title, p50(Above, Samples) / p50(Below, Samples), ratio, Bar);
        false -> []
    end.

-spec value(string(), number(), ratio | us | ms | kib | count, bar()) -> [figure()].
value(Title, Value, Unit, Bar) -> [{Title, Value, Unit, Bar}].

%% ---- Markdown -------------------------------------------------------------------------------

%% @doc The result of an operation for people.
-spec markdown(atom(), result()) -> iodata().
markdown(Operation, #{samples := Samples, figures := Figures}) ->
    ["\n## ", atom_to_list(Operation), "\n", samples(Samples), figures(Figures)].

samples([]) -> [];
samples(Samples) ->
    Row = fun({Title, Nanos}) ->
        Of = fun(P) -> fine(bench_stats:us(bench_stats:percentile(P, Nanos))) end,
        [Title, Of(50), Of(99), integer_to_list(length(Nanos))]
    end,
    ["\n", bench_markdown:table(["us", "p50", "p99", "samples"], lists:map(Row, Samples))].

figures([]) -> [];
figures(Figures) ->
    Row = fun({Title, Value, Unit, Bar}) ->
        [Title, number(Value, Unit) | judged(Value, Unit, Bar)]
    end,
    ["\n", bench_markdown:table(["figure", "value", "bar", "holds"], lists:map(Row, Figures))].

judged(_, _, none) -> ["", ""];
judged(Value, Unit, {at_most, Bar}) -> [["<= ", number(Bar, Unit)], holds(Value =< Bar)];
judged(Value, Unit, {at_least, Bar}) -> [[">= ", number(Bar, Unit)], holds(Value >= Bar)].

holds(true) -> "yes";
holds(false) -> "NO".

number(Value, ratio) -> bench_markdown:ratio(Value);
number(Value, us) -> [fine(Value), " us"];
number(Value, ms) -> bench_markdown:ms(Value);
number(Value, kib) -> io_lib:format("~.1f KiB", [float(Value)]);
number(Value, count) -> integer_to_list(Value).

%% Some operations take less than a microsecond.
fine(Micros) -> io_lib:format("~.2f", [float(Micros)]).
