%% The WebAssembly specification's tests, run through the API (scripts/spec-tests.sh gets them). Rule: every
%% directive passes, or is listed in spec_misses.terms with a reason; one that is listed and passes fails.
-module(spec_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) ->
    wasmtime_test:use(Runner),
    [{runner, Runner}, {sum, counters:new(2, [])} | Config].

end_per_group(_, Config) ->
    wasmtime_test:use(thread),
    Sum = proplists:get_value(sum, Config),
    say(Config, "all", counters:get(Sum, 1), counters:get(Sum, 2)).

suite() -> [{timetrap, {minutes, 60}}].

init_per_suite(Config) -> [{tests, tests()}, {misses, misses()} | Config].

end_per_suite(_) -> ok.

%% ---- what is run ----------------------------------------------------------------------------

-define(VERSION_2, [simd, bulk_memory, multi_value, reference_types]).
-define(VERSION_3, ?VERSION_2 ++ [relaxed_simd, multi_memory, memory64, tail_call, function_references, gc,
                                  exceptions]).

%% Folders, and what of that which can be turned on and off is on.
folders(latest) ->
    [{"wasm-latest", ?VERSION_3}];
folders(versions) ->
    [{"wasm-v1", []}, {"wasm-v2", ?VERSION_2}, {"wasm-v3", ?VERSION_3}];
folders(proposals_of_2) ->
    [{"proposals/bulk-memory", ?VERSION_3}, {"proposals/simd", [multi_memory | ?VERSION_2]}
     | [{"proposals/" ++ Name, ?VERSION_2}
        || Name <- ["multi-value", "mutable-global", "nontrapping-float-to-int-conversions", "reference-types",
                    "sign-extension-ops"]]];
folders(proposals_of_3) ->
    [{"proposals/function-references", ?VERSION_2 ++ [function_references, tail_call]},
     {"proposals/memory64", ?VERSION_2 ++ [memory64]}
     | [{"proposals/" ++ Name, ?VERSION_3}
        || Name <- ["annotations", "exceptions", "extended-const", "gc", "multi-memory", "relaxed-simd",
                    "tail-call"]]];
folders(open_proposals) ->
    [{"proposals/custom-page-sizes", [custom_page_sizes | ?VERSION_3]},
     {"proposals/threads", [threads, bulk_memory]},
     {"proposals/wide-arithmetic", [wide_arithmetic | ?VERSION_3]}];
folders(lacking) ->
    [{"proposals/compact-import-section", ?VERSION_3}, {"proposals/custom-descriptors", ?VERSION_3}].

options(On) ->
    Known = [wide_arithmetic, custom_page_sizes, threads | ?VERSION_3],
    #{proposals => maps:from_list([{P, lists:member(P, On)} || P <- Known])}.

%% The specification as it is developed.
t_latest(Config) -> as_listed(Config, latest).

%% Its versions, each with what that version has.
t_versions(Config) -> as_listed(Config, versions).

%% The proposals that became version 2, or are older.
t_proposals_of_2(Config) -> as_listed(Config, proposals_of_2).

%% The proposals that became version 3.
t_proposals_of_3(Config) -> as_listed(Config, proposals_of_3).

%% The proposals that no version has yet.
t_open_proposals(Config) -> as_listed(Config, open_proposals).

%% Proposals that Wasmtime does not have: what needs them is refused. Once it is not, they belong above.
t_lacking(Config) ->
    [begin
         Misses = [Got || {_, _, {miss, {error, #{class := compile}} = Got}} <- run(scripts(Config, Folder), Folder, On)],
         ?assertMatch({Folder, [_ | _]}, {Folder, Misses})
     end || {Folder, On} <- folders(lacking)].

%% Every folder of the tests is run by a case, and every miss is in one that is.
t_all_folders(Config) ->
    Tests = folder_of_tests(Config),
    Known = [Folder || Case <- [latest, versions, proposals_of_2, proposals_of_3, open_proposals, lacking],
                       {Folder, _} <- folders(Case)],
    ?assertEqual([], (filelib:wildcard("wasm-*", Tests) ++ filelib:wildcard("proposals/*", Tests)) -- Known),
    ?assertEqual([], [File || {File, _, _} <- proplists:get_value(misses, Config),
                              not lists:member(filename:dirname(File), Known)]).

%% ---- the run --------------------------------------------------------------------------------

%% Nothing that was not listed, or was and passed; and nothing is left behind.
as_listed(Config, Case) ->
    Before = alive(),
    ?assertEqual([], lists:append([folder(Config, Folder, On) || {Folder, On} <- folders(Case)])),
    ?assertEqual(Before, alive()).

alive() -> maps:remove(threads_parked, wasmtime_test:settled()).

folder(Config, Folder, On) ->
    Scripts = scripts(Config, Folder),
    Results = run(Scripts, Folder, On),
    Listed = [{File, Line} || {File, _, Lines} <- proplists:get_value(misses, Config),
                              lists:member(File, names(Scripts, Folder)), Line <- Lines],
    Missed = [{File, Line} || {File, Line, {miss, _}} <- Results],
    report(Config, Folder, length(Results), length(Missed)),
    [{not_listed, File, Line, Got} || {File, Line, {miss, Got}} <- Results, not lists:member({File, Line}, Listed)]
        ++ [{listed_but_passes, File, Line} || {File, Line} <- Listed -- Missed].

report(Config, Folder, Total, Missed) ->
    Sum = proplists:get_value(sum, Config),
    counters:add(Sum, 1, Total),
    counters:add(Sum, 2, Missed),
    say(Config, Folder, Total, Missed).

say(Config, What, Total, Missed) ->
    io:format(user, "spec tests, ~s: ~s: ~w of ~w passed, ~w missed~n",
              [proplists:get_value(runner, Config), What, Total - Missed, Total, Missed]).

%% The scripts of a folder: all, or in a quick run every sixth of those that the latest ones repeat.
scripts(Config, Folder) ->
    All = lists:sort(filelib:wildcard(filename:join([folder_of_tests(Config), Folder, "*.term"]))),
    ?assertMatch([_ | _], All),
    Older = [Name || Case <- [versions, proposals_of_2], {Name, _} <- folders(Case)],
    Step = case lists:member(Folder, Older) of
        true -> wasmtime_test:rounds(6, 1, 1);
        false -> 1
    end,
    [Path || {N, Path} <- lists:zip(lists:seq(0, length(All) - 1), All), N rem Step =:= 0].

names(Scripts, Folder) -> [name(Path, Folder) || Path <- Scripts].

name(Path, Folder) -> filename:join(Folder, filename:basename(Path, ".term")).

%% `{Script, Line, Result}' for every directive of the scripts, which are run by as many processes as there
%% are schedulers.
run(Files, Folder, On) ->
    Queue = ets:new(queue, [public, ordered_set]),
    ets:insert(Queue, [{File} || File <- Files]),
    Workers = [wasmtime_test:caller(fun() -> work(Queue, Folder, On) end)
               || _ <- lists:seq(1, erlang:system_info(schedulers_online))],
    Results = [receive
                   {Pid, Done} -> Done;
                   {'DOWN', Monitor, process, Pid, Reason} -> error(Reason)
               end || {Pid, Monitor} <- Workers],
    ets:delete(Queue),
    lists:append(Results).

work(Queue, Folder, On) ->
    case ets:first(Queue) of
        '$end_of_table' -> [];
        File ->
            case ets:take(Queue, File) of
                [{File}] -> script(File, Folder, On) ++ work(Queue, Folder, On);
                [] -> work(Queue, Folder, On)
            end
    end.

script(File, Folder, On) ->
    {ok, Bin} = file:read_file(File),
    [{name(File, Folder), Line, Result} || {Line, Result} <- spec_script:run(binary_to_term(Bin), options(On))].

%% ---- what there is --------------------------------------------------------------------------

%% The folder of the tests. Where they are not to be had, each case fails and says so.
folder_of_tests(Config) ->
    case proplists:get_value(tests, Config) of
        {ok, Folder} -> Folder;
        {error, Said} -> error({no_specification_tests, Said})
    end.

tests() ->
    Script = filename:join([wasmtime_test:root(), "scripts", "spec-tests.sh"]),
    Port = open_port({spawn_executable, Script}, [exit_status, stderr_to_stdout, binary, {line, 4096}]),
    said(Port, []).

%% The last line is the folder, or what went wrong.
said(Port, Lines) ->
    receive
        {Port, {data, {_, Line}}} -> said(Port, [Line | Lines]);
        {Port, {exit_status, 0}} -> {ok, binary_to_list(hd(Lines))};
        {Port, {exit_status, _}} -> {error, lists:reverse(Lines)}
    end.

misses() ->
    {ok, [{reasons, Reasons} | Misses]} =
        file:consult(filename:join([wasmtime_test:root(), "test", "spec_misses.terms"])),
    [] = [Reason || {_, Reason, _} <- Misses, not lists:keymember(Reason, 1, Reasons)],
    Misses.
