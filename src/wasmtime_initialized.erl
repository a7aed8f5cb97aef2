%% @private
%% Whether `_initialize' ran in the instance of a pre-initialization, by whatever way it was called.
%% Rule: a call counts when it ended well; other instances pay one look at their functions.
-module(wasmtime_initialized).

-include("wasmtime_instance.hrl").

-export([new/0, delete/1, ran/1]).
-export([called/3, started/3, ended/3, referred/3, called_ref/3]).

-define(NAME, <<"_initialize">>).

%% @doc What an instance's functions hold, as `initialized'. Its rows are `ran', calls that are not
%% known to have failed, and references to the function.
-spec new() -> ets:table().
new() -> ets:new(?MODULE, [public]).

%% @doc Forgets it; calls of an instance that outlived it are not noted.
-spec delete(ets:table()) -> ok.
delete(Table) ->
    true = ets:delete(Table),
    ok.

%% @doc Whether it ran. Of calls that nobody awaited, a result in the mailbox tells; one whose result
%% was received by other means counts.
-spec ran(#wasmtime_instance{}) -> boolean().
ran(#wasmtime_instance{funs = #{initialized := Table}, id = Id} = Inst) ->
    Jobs = lists:append(ets:match(Table, {{job, '$1'}})),
    _ = [receive {wasmtime_result, Id, Job, Result} -> ended(Job, Inst, Result) after 0 -> ok end
         || Job <- Jobs],
    ets:member(Table, ran) orelse ets:match(Table, {{job, '$1'}}) =/= [].

%% @doc A call of that name ended so.
-spec called(binary(), #wasmtime_instance{}, Result) -> Result.
%% Most instances have no such table, and the name is the longer look.
called(_, #wasmtime_instance{funs = Funs}, Result) when not is_map_key(initialized, Funs) ->
    Result;
called(?NAME, #wasmtime_instance{funs = #{initialized := Table}}, {ok, _} = Result) ->
    note(Table, ran, Result);
called(_, _, Result) ->
    Result.

%% @doc An asynchronous call of that name was started, or refused.
-spec started(binary(), #wasmtime_instance{}, Result) -> Result.
started(?NAME, #wasmtime_instance{funs = #{initialized := Table}}, {ok, Job} = Result) ->
    note(Table, {job, Job}, Result);
started(_, _, Result) ->
    Result.

%% @doc An asynchronous call ended so.
-spec ended(pos_integer(), #wasmtime_instance{}, term()) -> ok.
ended(Job, #wasmtime_instance{funs = #{initialized := Table}}, {error, _}) ->
    _ = try ets:delete(Table, {job, Job}) catch error:badarg -> true end,
    ok;
ended(_, _, _) ->
    ok.

%% @doc A reference to the export of that name was made.
-spec referred(binary(), #wasmtime_instance{}, Result) -> Result.
referred(?NAME, #wasmtime_instance{funs = #{initialized := Table}}, {ok, Ref} = Result) ->
    note(Table, {ref, Ref}, Result);
referred(_, _, Result) ->
    Result.

%% @doc A call of that reference ended so.
-spec called_ref(term(), #wasmtime_instance{}, Result) -> Result.
called_ref(Ref, #wasmtime_instance{funs = #{initialized := Table}}, {ok, _} = Result) ->
    try ets:member(Table, {ref, Ref}) of
        true -> note(Table, ran, Result);
        false -> Result
    catch
        error:badarg -> Result
    end;
called_ref(_, _, Result) ->
    Result.

note(Table, Key, Result) ->
    try ets:insert(Table, {Key}) of
        true -> Result
    catch
        error:badarg -> Result
    end.
