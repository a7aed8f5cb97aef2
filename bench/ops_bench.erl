%% Single operations, measured for both runners and beside plain Rust. Run by scripts/bench.sh.
%% Rule: a result that cannot be verified ends the run with a message and a non-zero status; a bar
%% that does not hold is told in its table.
-module(ops_bench).

-export([main/1, check/1, operations/0, run/2, sizes/1]).

%% Long schedules of which the report tells where they were.
-define(SHOWN, 5).

%% In the order of the report. Each is op_NAME.
-define(OPERATIONS, [instantiate, call, host_call, memory, stream, cycle, pool, idle, mailbox,
                     fairness, deadline]).

%% @doc Runs what the words of the command line ask for and ends the VM. WASMTIME_FLOOR in the
%% environment says where the floor program is; without it there are no rows of plain Rust.
-spec main([string()]) -> no_return().
main(Words) ->
    case parse(Words) of
        help -> halt(0);
        Wanted -> halt(report(Wanted))
    end.

%% @doc Ends the VM with status 0 when the words make sense, after the help if they ask for it.
-spec check([string()]) -> no_return().
check(Words) ->
    _ = parse(Words),
    halt(0).

-spec operations() -> [atom(), ...].
operations() -> ?OPERATIONS.

%% @doc How much is measured; `tiny' only shows that everything works.
-spec sizes(full | quick | tiny) -> bench_ops:size().
sizes(full) ->
    #{samples => 5000, turn => 250, instances => 9999, messages => 100_000, ms => 5000,
      deadlines => 200};
sizes(quick) ->
    #{samples => 1000, turn => 100, instances => 9999, messages => 100_000, ms => 1000,
      deadlines => 20};
sizes(tiny) ->
    #{samples => 20, turn => 10, instances => 20, messages => 1000, ms => 50, deadlines => 2}.

%% @doc One operation.
-spec run(atom(), bench_ops:context()) -> bench_ops:result().
run(Operation, Context) ->
    Module = list_to_atom("op_" ++ atom_to_list(Operation)),
    Module:run(Context).

%% ---- the command line -----------------------------------------------------------------------

parse(Words) -> parse(Words, #{size => full, runner => all, operations => []}).

parse([], #{operations := []} = Wanted) -> Wanted#{operations := ?OPERATIONS};
parse([], Wanted) -> Wanted;
parse(["--help" | _], _) -> io:put_chars(help()), help;
parse(["--quick" | Rest], Wanted) -> parse(Rest, Wanted#{size := quick});
parse(["--runner", Word | Rest], Wanted) ->
    parse(Rest, Wanted#{runner := one_of(Word, [thread, scheduler, all])});
parse([Word | Rest], #{operations := Operations} = Wanted) ->
    parse(Rest, Wanted#{operations := Operations ++ [one_of(Word, ?OPERATIONS)]}).

one_of(Word, Names) ->
    case [Name || Name <- Names, atom_to_list(Name) =:= Word] of
        [Name] -> Name;
        [] -> halt(fail("~ts is not one of ~ts~n~n~ts", [Word, words(Names), help()]))
    end.

words(Names) -> lists:join(" ", [atom_to_list(Name) || Name <- Names]).

help() ->
    ["Usage: scripts/bench.sh [FLAGS] [OPERATION...]\n"
     "\n"
     "Single operations of trivial modules, beside plain Rust. Without names all of them:\n"
     "  ", words(?OPERATIONS), "\n"
     "\n"
     "  --quick                   fewer samples\n"
     "  --runner thread|scheduler|all\n"
     "                            who polls the guests (all)\n"
     "  --help                    this text\n"].

%% ---- the report -----------------------------------------------------------------------------

report(#{size := Size, runner := Runner, operations := Operations}) ->
    try
        Context = #{runners => bench_guest:runners(Runner), size => sizes(Size), floor => floor()},
        io:put_chars(["# Single operations\n\n", bench_host:line()]),
        Long = lists:append([operation(Operation, Context) || Operation <- Operations]),
        io:put_chars(long(Long)),
        0
    catch
        throw:{failed, Message} -> fail("~ts", [Message]);
        Class:Reason:Stack -> fail("~p: ~tp~n~tp", [Class, Reason, Stack])
    end.

%% Each is printed as soon as it is there.
operation(Operation, Context) ->
    io:format(standard_error, "bench: ~s~n", [Operation]),
    {Result, Long} = bench_watch:during(fun() -> run(Operation, Context) end),
    io:put_chars(bench_ops:markdown(Operation, Result)),
    [{Operation, Event} || Event <- Long].

floor() ->
    case os:getenv("WASMTIME_FLOOR") of
        Value when Value =:= false; Value =:= "" -> none;
        Program -> bench_floor:open_ops(Program)
    end.

%% With both runners the threads of one take processors from the schedulers, and so make long ones.
long(Long) ->
    Count = fun(Events) -> integer_to_list(length(Events)) end,
    By = [[atom_to_list(Operation), Count([E || {Op, E} <- Long, Op =:= Operation])]
          || Operation <- lists:usort([Op || {Op, _} <- Long])],
    ["\n## long_schedule\n\n",
     bench_markdown:table([io_lib:format("more than ~b ms on a scheduler",
                                         [bench_watch:threshold_ms()]), "times"],
                          By ++ [["all", Count(Long)]]),
     [io_lib:format("~n    ~0tp", [Event]) || Event <- lists:sublist(Long, ?SHOWN)],
     [$\n || Long =/= []]].

-spec fail(io:format(), [term()]) -> 1.
fail(Format, Args) ->
    io:format(standard_error, "ops_bench: " ++ Format ++ "~n", Args),
    1.
