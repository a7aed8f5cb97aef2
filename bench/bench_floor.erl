%% The floor program as a port: plain Rust that serves the same requests when it is told to.
-module(bench_floor).

-export([open/2, open_ops/1, rows/1, run/3, close/1]).
-export_type([floor/0]).

-type floor() :: #{port := port(), rows := [{non_neg_integer(), string()}]}.

%% Compiling the guest for Wasmtime's own pool is the longest wait.
-define(PREPARE_MS, 600_000).
-define(ROUND_MS, 120_000).

%% @doc Starts the program and waits until its rows are ready.
-spec open(file:filename(), map()) -> floor().
open(Program, Guest) ->
    io:format(standard_error, "bench: preparing the floor program~n", []),
    start(Program, arguments(Guest)).

%% @doc The same for the operations of a trivial module.
-spec open_ops(file:filename()) -> floor().
open_ops(Program) -> start(Program, ["ops"]).

start(Program, Arguments) ->
    filelib:is_regular(Program) orelse bench_guest:fail("~ts does not exist", [Program]),
    Port = open_port({spawn_executable, Program},
                     [{packet, 4}, binary, exit_status, {args, Arguments}]),
    Names = string:split(ask(Port, "rows", ?PREPARE_MS), "\n", all),
    Texts = [unicode:characters_to_list(Name) || Name <- Names],
    #{port => Port, rows => lists:zip(lists:seq(0, length(Texts) - 1), Texts)}.

arguments(#{preinit := Preinit, artifact := Artifact, root := Root, lib := Lib}) ->
    {Before, After} = bench_guest:expected(),
    ["--module", Preinit, "--artifact", Artifact, "--root", Root, "--lib", Lib,
     "--before", Before, "--after", After].

%% @doc The rows: `reused', `own', then those of Wasmtime's pool; or those of the operations.
-spec rows(floor()) -> [{non_neg_integer(), string()}].
rows(#{rows := Rows}) -> Rows.

%% @doc Serves requests in a row: nanoseconds of each.
-spec run(floor(), non_neg_integer(), pos_integer()) -> [non_neg_integer()].
run(#{port := Port}, Row, Count) ->
    Answer = ask(Port, io_lib:format("run ~b ~b", [Row, Count]), ?ROUND_MS),
    [Nanos || <<Nanos:64>> <= Answer].

-spec close(floor()) -> ok.
close(#{port := Port}) ->
    %% Else a caller that traps exits would find a message.
    true = unlink(Port),
    true = port_close(Port),
    ok.

ask(Port, Command, Wait) ->
    true = port_command(Port, Command),
    receive
        {Port, {data, <<0, Answer/binary>>}} -> Answer;
        {Port, {data, <<1, Message/binary>>}} -> bench_guest:fail("floor: ~ts", [Message]);
        {Port, {exit_status, Status}} -> bench_guest:fail("floor ended with status ~b", [Status])
    after Wait ->
        bench_guest:fail("floor: no answer to ~ts in ~b s", [Command, Wait div 1000])
    end.
