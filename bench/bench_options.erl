%% The flags of the benchmark: defaults, checks and messages.
-module(bench_options).

-export([parse/1, help/0]).

%% @doc The options of a run, or `help'. Throws `{usage, Message}'.
-spec parse([string()]) -> help | map().
parse(Words) ->
    flags(Words, #{requests => 1000, callers => [1, 4, 8, 14, 28], seconds => 3, deadlines => 200,
                   runner => thread, json => none}).

-spec help() -> string().
help() ->
    "Usage: scripts/bench-reactor.sh [FLAGS]\n"
    "\n"
    "  --quick                   200 requests, 1 s a row, callers 1,2,14,28, 20 deadlines\n"
    "  --requests N              requests of each row with one caller (1000)\n"
    "  --callers N,N,...         numbers of concurrent callers (1,4,8,14,28)\n"
    "  --seconds S               seconds of each concurrent row (3)\n"
    "  --runner thread|scheduler|all\n"
    "                            who polls the guests (thread); all is those there are\n"
    "  --json FILE               the figures for a program\n"
    "  --svg DIR                 two pictures, latency per phase and throughput over callers\n"
    "                            (where the file of --json goes; without it none)\n"
    "  --help                    this text\n"
    "\n"
    "From the environment: PY_REACTOR_DIR, a finished guest (see scripts/build-py-reactor.sh).\n".

flags([], Options) ->
    pictures(maps:merge(Options, maps:get(said, Options, #{})));
flags(["--help" | _], _) ->
    help;
flags(["--quick" | Rest], Options) ->
    Quick = #{requests => 200, callers => [1, 2, 14, 28], seconds => 1, deadlines => 20},
    flags(Rest, maps:merge(Options, Quick));
flags(["--requests", Value | Rest], Options) ->
    flags(Rest, said(requests, number("--requests", Value, 1, 1_000_000), Options));
flags(["--callers", Value | Rest], Options) ->
    Parts = string:split(Value, ",", all),
    flags(Rest, said(callers, [number("--callers", Part, 1, 250) || Part <- Parts], Options));
flags(["--seconds", Value | Rest], Options) ->
    flags(Rest, said(seconds, number("--seconds", Value, 1, 3600), Options));
flags(["--runner", Value | Rest], Options) ->
    flags(Rest, said(runner, runner(Value), Options));
flags(["--json", File | Rest], Options) ->
    flags(Rest, said(json, File, Options));
flags(["--svg", Dir | Rest], Options) ->
    flags(Rest, said(svg, Dir, Options));
flags([Flag], _) when Flag =:= "--requests"; Flag =:= "--callers"; Flag =:= "--seconds";
                      Flag =:= "--runner"; Flag =:= "--json"; Flag =:= "--svg" ->
    usage("~ts needs a value", [Flag]);
flags([Flag | _], _) ->
    usage("unknown flag ~ts", [Flag]).

pictures(#{svg := _} = Options) -> Options;
pictures(#{json := none} = Options) -> Options#{svg => none};
pictures(#{json := File} = Options) -> Options#{svg => filename:dirname(File)}.

%% What is said outright counts, wherever `--quick' stands.
said(Key, Value, Options) ->
    Options#{said => (maps:get(said, Options, #{}))#{Key => Value}}.

runner("thread") -> thread;
runner("scheduler") -> scheduler;
runner("all") -> all;
runner(Other) -> usage("--runner must be thread, scheduler or all, not ~ts", [Other]).

number(Flag, Text, Min, Max) ->
    case string:to_integer(Text) of
        {Number, ""} when is_integer(Number), Number >= Min, Number =< Max -> Number;
        _ -> usage("~ts must be whole numbers from ~b to ~b, not ~ts", [Flag, Min, Max, Text])
    end.

-spec usage(io:format(), [term()]) -> no_return().
usage(Format, Args) ->
    throw({usage, unicode:characters_to_list(io_lib:format(Format, Args))}).
